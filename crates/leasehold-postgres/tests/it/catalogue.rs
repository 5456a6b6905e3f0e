//! What stands in the server's catalogue is what the map of roles says, both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use leasehold_postgres::Purpose;
use leasehold_postgres::roles::{FUNCTIONS, Relation, Role, TABLES, VIEWS};

use crate::harness::OneSchema;

type Grants = BTreeSet<String>;

impl OneSchema {
    /// Names in the schema by a statement that answers a name and a text.
    async fn pairs(&self, text: &str) -> BTreeMap<String, Vec<String>> {
        let rows = self.outsider.query(text, &[&self.schema]).await.unwrap();
        let mut pairs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in &rows {
            pairs.entry(row.get(0)).or_default().push(row.get(1));
        }
        pairs
    }

    /// What the catalogue and the map disagree about.
    async fn disagreements(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.judge_tables(&mut found).await;
        self.judge_grants(&mut found).await;
        self.judge_functions(&mut found).await;
        found
    }

    /// Who migrates.
    pub(crate) async fn owner(&self) -> String {
        let row = self.outsider.query_one("select current_user::text", &[]);
        row.await.unwrap().get(0)
    }

    async fn judge_tables(&self, found: &mut Vec<String>) {
        let owner = self.owner().await;
        // Sequences, materialized views and foreign tables would be new kinds of things to fence.
        let there = self
            .pairs(
                "select relname::text, relkind::text || relrowsecurity::text || relforcerowsecurity::text
                     || coalesce(array_to_string(reloptions, ' '), '')
                 from pg_class where relnamespace = $1::text::regnamespace
                     and relkind not in ('i', 'I', 'c', 't')",
            )
            .await;
        let mut policies = self
            .pairs(
                "select tablename::text, policyname || ' for ' || cmd || ' to '
                     || array_to_string(roles, ' ') || ' ' || permissive || ' using '
                     || coalesce(qual, '') || ' check ' || coalesce(with_check, '')
                 from pg_policies where schemaname = $1 order by 2",
            )
            .await;
        for name in there.keys() {
            if !TABLES.iter().chain(VIEWS).any(|known| known.name == name) {
                found.push(format!("{name} is not in the map"));
            }
        }
        for table in TABLES {
            let Some(seen) = there.get(table.name) else {
                found.push(format!("{} is not there", table.name));
                continue;
            };
            let is_fenced = seen[0].starts_with("rtruetrue");
            let has_column = table.scope.org_column().is_some();
            if is_fenced != has_column {
                found.push(format!("{}: forced row security {is_fenced}", table.name));
            }
            let wanted = self.policies(table, &owner);
            let policies = policies.remove(table.name).unwrap_or_default();
            if policies != wanted {
                found.push(format!("{}: policies {policies:?}", table.name));
            }
        }
        for view in VIEWS {
            if there.get(view.name).map(|seen| seen[0].as_str())
                != Some("vfalsefalsesecurity_invoker=true")
            {
                found.push(format!("{} looks with its owner's eyes", view.name));
            }
        }
        for (name, others) in policies {
            found.push(format!("{name}: policies {others:?}"));
        }
    }

    /// The policies that the table is to have, as the server shows them.
    fn policies(&self, table: &Relation, owner: &str) -> Vec<String> {
        let Some(column) = table.scope.org_column() else {
            return Vec::new();
        };
        let all = |purpose: &str, login: &str| {
            format!("{purpose} for ALL to {login} PERMISSIVE using true check true")
        };
        let own = format!(
            "({column} = ANY (( SELECT {}.named_orgs() AS named_orgs)::uuid[]))",
            self.schema
        );
        let mut wanted = vec![
            all("owner", owner),
            format!(
                "runtime for ALL to {} PERMISSIVE using {own} check {own}",
                self.login(Purpose::Runtime)
            ),
            all("system", &self.login(Purpose::System)),
        ];
        if !table.rights(Purpose::Enqueuer).is_empty() {
            wanted.insert(0, all("enqueuer", &self.login(Purpose::Enqueuer)));
        }
        wanted
    }

    async fn judge_grants(&self, found: &mut Vec<String>) {
        let granted = self
            .pairs(
                "select relname::text, grantee::regrole::text || ' ' || privilege_type
                 from pg_class, aclexplode(relacl)
                 where relnamespace = $1::text::regnamespace and grantee <> relowner",
            )
            .await;
        for relation in TABLES.iter().chain(VIEWS) {
            let seen: Grants = granted
                .get(relation.name)
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            let wanted: Grants = Purpose::ALL
                .into_iter()
                .flat_map(|purpose| {
                    let rights = relation.rights(purpose).split(", ");
                    let rights = rights.filter(|right| !right.is_empty());
                    rights.map(move |right| (purpose, right.to_uppercase()))
                })
                .map(|(purpose, right)| format!("{} {right}", self.login(purpose)))
                .collect();
            if seen != wanted {
                found.push(format!("{}: grants {seen:?}", relation.name));
            }
        }
        let columns = self
            .pairs(
                "select attrelid::regclass::text, attname::text from pg_attribute
                 where attrelid in (
                     select oid from pg_class where relnamespace = $1::text::regnamespace
                 ) and attacl is not null",
            )
            .await;
        if !columns.is_empty() {
            found.push(format!("grants on columns: {columns:?}"));
        }
    }

    async fn judge_functions(&self, found: &mut Vec<String>) {
        let there = self
            .pairs(
                "select proname::text, prosecdef::text || ' ' || proowner::regrole::text
                 from pg_proc where pronamespace = $1::text::regnamespace",
            )
            .await;
        let callers = self
            .pairs(
                "select proname::text,
                     case grantee when 0 then 'everybody' else grantee::regrole::text end
                 from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
                 where pronamespace = $1::text::regnamespace and grantee <> proowner",
            )
            .await;
        for name in there.keys() {
            if !FUNCTIONS.iter().any(|known| known.name == name) {
                found.push(format!("the function {name} is not in the map"));
            }
        }
        for function in FUNCTIONS {
            let Some(seen) = there.get(function.name) else {
                found.push(format!("the function {} is not there", function.name));
                continue;
            };
            let wanted = if function.is_definer {
                format!("true {}", self.login(Purpose::Enqueuer))
            } else {
                format!("false {}", self.owner().await)
            };
            if *seen != [wanted] {
                found.push(format!("the function {}: {seen:?}", function.name));
            }
            let seen: Grants = callers
                .get(function.name)
                .into_iter()
                .flatten()
                .cloned()
                .collect();
            let wanted = function.callers.iter().map(|caller| self.login(*caller));
            if seen != wanted.collect() {
                found.push(format!("the function {}: for {seen:?}", function.name));
            }
        }
    }
}

#[tokio::test]
async fn the_catalogue_is_as_the_map_says() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    assert_eq!(on.disagreements().await, Vec::<String>::new());
}

/// The other direction: whatever is changed is found, and making the logins again puts it right where that is
/// not a matter of what the map says.
#[tokio::test]
async fn what_is_not_as_the_map_says_is_found() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    let runtime = on.login(Purpose::Runtime);
    for text in [
        "alter table {schema}.items no force row level security",
        "alter table {schema}.outbox disable row level security",
        "drop policy system on {schema}.claims",
        "alter policy runtime on {schema}.ends using (true)",
        "drop policy runtime on {schema}.orgs; create policy runtime on {schema}.orgs to {runtime} using (true)",
        "grant delete on {schema}.items to {runtime}",
        "revoke select on {schema}.entries from {runtime}",
        "alter view {schema}.work_items reset (security_invoker)",
        "grant execute on function {schema}.named_orgs to public",
    ] {
        let text = text
            .replace("{schema}", &on.schema)
            .replace("{runtime}", &runtime);
        on.outsider.batch_execute(&text).await.unwrap();
        let found = on.disagreements().await;
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        on.make_logins().await;
        assert_eq!(on.disagreements().await, Vec::<String>::new(), "{text}");
    }
    for text in [
        "create table {schema}.another (org_id uuid not null)",
        "create policy another on {schema}.items to {runtime} using (true)",
        "create function {schema}.another() returns integer language sql as 'select 1'",
        "create sequence {schema}.numbers",
        "grant update (lane) on {schema}.ready to {runtime}",
    ] {
        let text = text
            .replace("{schema}", &on.schema)
            .replace("{runtime}", &runtime);
        let before = on.disagreements().await.len();
        on.outsider.batch_execute(&text).await.unwrap();
        assert_eq!(on.disagreements().await.len(), before + 1, "{text}");
    }
}

/// A table that a later step makes is fenced by the migration that runs the step.
#[tokio::test]
async fn a_step_after_the_logins_is_fenced_with_the_rest() {
    let Some(on) = OneSchema::fenced().await else {
        return;
    };
    let text = format!(
        "drop table {schema}.schedules;
         delete from {schema}.migrations where name = '0006_schedules'",
        schema = on.schema
    );
    on.outsider.batch_execute(&text).await.unwrap();
    assert_ne!(on.disagreements().await, Vec::<String>::new());
    leasehold_postgres::migrate(on.address(), &on.options())
        .await
        .unwrap();
    assert_eq!(on.disagreements().await, Vec::<String>::new());
}

/// No foreign key ties what may stand in two databases; and there is none at all, since each costs its writer
/// a look.
#[tokio::test]
async fn no_foreign_key_crosses_roles() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    let keys = on
        .pairs(
            "select conrelid::regclass::text, confrelid::regclass::text from pg_constraint
             where connamespace = $1::text::regnamespace and contype = 'f'",
        )
        .await;
    assert!(keys.is_empty(), "{keys:?}");
}

/// No file of statements names what stands in two databases, so no statement and no transaction can.
#[test]
fn no_statement_crosses_roles() {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut named = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let mut roles = BTreeSet::new();
            for place in text.split("{schema}.").skip(1) {
                let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
                let name = place.split(|c| !is_name(c)).next().unwrap();
                let known = TABLES.iter().chain(VIEWS).find(|known| known.name == name);
                roles.extend(known.and_then(|known| known.role));
            }
            named += roles.len();
            assert!(roles.len() <= 1, "{} names {roles:?}", path.display());
        }
    }
    // Of each table's role, at least where it is read and where it is written.
    assert!(named >= 2 * Role::ALL.len(), "{named} files name a table");
}

/// A database that serves one role has that role's tables, and no others.
#[tokio::test]
async fn a_role_alone_has_its_tables_alone() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    for role in Role::ALL {
        let schema = format!("{}_{}", on.schema, role.name());
        let options = on.options().with_schema(&schema).with_roles(&[role]);
        leasehold_postgres::migrate(on.address(), &options)
            .await
            .unwrap();
        let text = "
            select relname::text from pg_class
            where relnamespace = $1::text::regnamespace and relkind in ('r', 'v')";
        let rows = on.outsider.query(text, &[&schema]).await.unwrap();
        let seen: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let known = TABLES.iter().chain(VIEWS);
        let own = known.filter(|known| known.role.is_none_or(|its| its == role));
        let wanted: BTreeSet<String> = own.map(|known| known.name.to_owned()).collect();
        assert_eq!(seen, wanted, "{}", role.name());
        let text = format!("drop schema {schema} cascade");
        on.outsider.batch_execute(&text).await.unwrap();
    }
}
