//! How the server runs the store's statements where there is much of everything: what it reads of which
//! table, and by which index.
//!
//! Read from the server's own counters, so that it is the store's statements as they are prepared and
//! asked that are held, with the plans that the server comes to use for them after some rounds.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use crate::faults::with_parameter;
use crate::harness::{OneSchema, PATIENCE};
use leasehold_core::rules::Transition;
use leasehold_core::store::work::{
    COUNT_MAX, Cancelled, ClaimRequest, Enqueued, Filter, Hold, LIST_READ_MAX, Page, Renewed,
    Retried, Settled,
};
use leasehold_core::{IdempotencyKey, Status, WorkStore as _};
use leasehold_postgres::{PostgresStore, Wakeup};
use leasehold_testkit::contract::samples::{
    DAY, ORG, OTHER, USER, complete, hold, id, kind, lane, numbered, renewal, request_of, retry,
    settlement, sweep_of,
};

/// More than after how many rounds the server plans a prepared statement once and for all.
const ROUNDS: usize = 8;

/// How many items a call is about.
const FEW: u32 = 20;

/// How many rows a call about a few items may read by an index: a hundredth of a pass over it, and several
/// times what a claim reads of its queues, with what others have taken from there.
const FEW_READS: i64 = 1_000;

/// How many items are held.
const HELD: i64 = 2_000;

/// Tables that hold a row for each item, or for each that waits or has ended.
const LARGE: [&str; 3] = ["items", "ready", "ends"];

/// An org's items: 40,000 wait, some of them for tomorrow, in two lanes of three kinds; 2,000 are held, of
/// which 500 by holders that are gone; 58,000 have ended, some badly. The other org has but a few, which are
/// the latest.
const FILL: &str = "
    create function pg_temp.numbered(n bigint) returns uuid language sql as
        $$ select lpad(to_hex(n), 32, '0')::uuid $$;
    insert into {schema}.items (id, org_id, created_at, created_by, kind, target_id, idempotency_key,
        request_id, lane, priority, max_attempts, payload)
    select pg_temp.numbered(n), case when n > 99990 then '{other}'::uuid else '{org}' end,
        now(), '{org}', (array['NOTE', 'MAIL', 'CALL'])[1 + n % 3],
        '{org}', pg_temp.numbered(n), '{org}', case when n % 5 = 0 then 'slow' else 'default' end,
        n % 2, 3, '{}'
    from generate_series(1, 100000) n;
    insert into {schema}.ready (id, org_id, lane, kind, priority, available_at, updated_at, updated_by,
        attempts, worker_losses, claim_seq)
    select id, org_id, lane, kind, priority,
        created_at + case when id::text like '%0' then interval '1 day' else interval '0' end,
        created_at, created_by, 0, 0, 0
    from {schema}.items where id > pg_temp.numbered(60000);
    insert into {schema}.claims (id, org_id, lane, token, claimed_by, lease_expires_at,
        available_at, updated_at, updated_by, attempts, worker_losses, claim_seq)
    select id, org_id, lane, gen_random_uuid(), 'worker-0',
        case when id > pg_temp.numbered(59500) then created_at else created_at + interval '1 day' end,
        created_at, created_at, created_by, 1, 0, 1
    from {schema}.items where id > pg_temp.numbered(58000) and id <= pg_temp.numbered(60000);
    insert into {schema}.ends (id, org_id, is_done, failure_code, available_at, updated_at, updated_by,
        attempts, worker_losses, claim_seq, audited_at)
    select id, org_id, id::text not like '%5',
        case when id::text like '%5' then 'handler_error' end, created_at,
        created_at - interval '1 hour', created_by, 1, 0, 1,
        case when id::text not like '%55' then created_at end
    from {schema}.items where id <= pg_temp.numbered(58000);
    insert into {schema}.troubles (id, org_id, last_error)
    select id, org_id, 'it broke' from {schema}.ends where not is_done;
";

/// A schema with [`FILL`], whose statistics nobody gathers unasked.
struct Filled {
    on: OneSchema,
    /// How the stores are connected whose reads are counted. A statement that has a name is soon planned for any
    /// parameters, one without for those that it has.
    wakeup: Wakeup,
}

impl Deref for Filled {
    type Target = OneSchema;

    fn deref(&self) -> &OneSchema {
        &self.on
    }
}

async fn filled(wakeup: Wakeup) -> Option<Filled> {
    let on = OneSchema::new().await?;
    let tables = on.tables().await;
    for table in tables {
        let text = format!(
            "alter table {}.{table} set (autovacuum_enabled = off)",
            on.schema
        );
        on.outsider.batch_execute(&text).await.unwrap();
    }
    let text = FILL
        .replace("{schema}", &on.schema)
        .replace("{org}", &ORG.to_string())
        .replace("{other}", &OTHER.to_string());
    on.outsider.batch_execute(&text).await.unwrap();
    // What the session has read that made the tables is counted now, and not in the middle of a test.
    let text = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1";
    let ends = async { while on.outsider.execute(text, &[&on.schema]).await.unwrap() > 0 {} };
    tokio::time::timeout(PATIENCE, ends)
        .await
        .expect("the session ends");
    Some(Filled { on, wakeup })
}

impl OneSchema {
    async fn tables(&self) -> Vec<String> {
        let text = "select relname::text from pg_stat_user_tables where schemaname = $1";
        let rows = self.outsider.query(text, &[&self.schema]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    pub(crate) async fn analyze(&self) {
        for table in self.tables().await {
            let text = format!("analyze {}.{table}", self.schema);
            self.outsider.batch_execute(&text).await.unwrap();
        }
    }

    /// What the server has counted so far of whatever has a name: a table, how often it was read through
    /// and how many rows of it that read; an index, how often it was used and how many rows that read.
    async fn counted(&self) -> BTreeMap<String, (i64, i64)> {
        // What this session did itself is counted with it, or it would be taken for somebody else's later.
        // Servers before 15 count at once.
        let _ = self
            .outsider
            .batch_execute("select pg_stat_force_next_flush()")
            .await;
        let text = "
            select relname::text, coalesce(seq_scan, 0), coalesce(seq_tup_read, 0)
            from pg_stat_user_tables where schemaname = $1
            union all
            select indexrelname::text, idx_scan, idx_tup_read
            from pg_stat_user_indexes where schemaname = $1";
        let rows = self.outsider.query(text, &[&self.schema]).await.unwrap();
        rows.iter()
            .map(|row| (row.get(0), (row.get(1), row.get(2))))
            .collect()
    }
}

impl Filled {
    /// Waits until the sessions of that name have ended: a session tells its counts then, at the latest.
    async fn sessions_end(&self, name: &str) {
        let gone = async {
            let text = "select from pg_stat_activity where application_name = $1";
            while self.outsider.execute(text, &[&name]).await.unwrap() > 0 {}
        };
        tokio::time::timeout(PATIENCE, gone)
            .await
            .expect("the store's sessions end");
    }

    /// Holds that rounds of a call, on a store of their own, read large tables by indexes alone, these
    /// among them, and at most so many rows by each in a round.
    async fn holds(
        &self,
        call: &str,
        indexes: &[&str],
        rows_max: i64,
        round: impl AsyncFn(&PostgresStore, usize),
    ) {
        let name = format!("{}_read", self.schema);
        let address = with_parameter(self.address(), "application_name", &name);
        // Called one after the other, all rounds are of one connection, which learns the statements.
        let options = self.options().with_wakeup(self.wakeup);
        let before = self.counted().await;
        let store = leasehold_postgres::connect(&address, options)
            .await
            .unwrap();
        for number in 0..ROUNDS {
            round(&store, number).await;
        }
        drop(store);
        self.sessions_end(&name).await;
        let mut reads = self.counted().await;
        for (name, (times, rows)) in &mut reads {
            let earlier = before.get(name).copied().unwrap_or_default();
            *times -= earlier.0;
            *rows -= earlier.1;
        }
        reads.retain(|_, (times, _)| *times > 0);
        for table in LARGE {
            let was = reads.contains_key(table);
            assert!(!was, "{call}: {table} was read through; {reads:?}");
        }
        for either in indexes {
            let was = either.split('|').any(|index| reads.contains_key(index));
            assert!(was, "{call}: {either} was not used; {reads:?}");
        }
        let rounds = i64::try_from(ROUNDS).unwrap();
        for (name, (_, rows)) in &reads {
            let is_large = LARGE.iter().any(|table| name.starts_with(table));
            let read_much = is_large && *rows > rounds * rows_max;
            assert!(!read_much, "{call}: {rows} rows were read by {name}");
        }
    }
}

#[tokio::test]
async fn named_statements_read_by_indexes_where_there_are_statistics() {
    with_statistics(Wakeup::Listen).await;
}

#[tokio::test]
async fn unnamed_statements_read_by_indexes_where_there_are_statistics() {
    with_statistics(Wakeup::Poll).await;
}

async fn with_statistics(wakeup: Wakeup) {
    let Some(on) = filled(wakeup).await else {
        return;
    };
    on.analyze().await;
    every_statement(&on).await;
}

#[tokio::test]
async fn named_statements_read_by_indexes_where_there_are_no_statistics() {
    without_statistics(Wakeup::Listen).await;
}

#[tokio::test]
async fn unnamed_statements_read_by_indexes_where_there_are_no_statistics() {
    without_statistics(Wakeup::Poll).await;
}

/// As after a first burst, or a restore.
async fn without_statistics(wakeup: Wakeup) {
    let Some(on) = filled(wakeup).await else {
        return;
    };
    every_statement(&on).await;
}

async fn every_statement(on: &Filled) {
    looks(on).await;
    lists(on).await;
    sweeps(on).await;
    enqueues(on).await;
    claims(on).await;
    settles(on).await;
}

fn request(tenant_cap: Option<u32>) -> ClaimRequest {
    ClaimRequest {
        lanes: vec![lane("default"), lane("slow")],
        kinds: vec![kind("NOTE"), kind("MAIL"), kind("NONE")],
        tenant_cap,
        ..request_of(FEW)
    }
}

async fn claims(on: &Filled) {
    for (call, cap) in [("claim", None), ("claim with a cap", Some(50_000))] {
        on.holds(
            call,
            &["ready_order", "items_pkey"],
            FEW_READS,
            async |store, _| {
                let claimed = store.claim(&request(cap)).await.unwrap();
                assert_eq!(claimed.len(), FEW as usize);
            },
        )
        .await;
    }
}

/// A settle as it is called: its name, the batches, what becomes of each item, whether it was settled
/// before, and the indexes.
type Settle<'a> = (&'a str, &'a [Vec<Hold>], Move, bool, &'a [&'a str]);

type Move = fn() -> Transition;

async fn settles(on: &Filled) {
    let mut held = Vec::new();
    for _ in 0..2 * ROUNDS {
        let claimed = on.store.claim(&request(None)).await.unwrap();
        held.push(claimed.iter().map(|c| hold(&c.item)).collect::<Vec<_>>());
    }
    let (first, second) = held.split_at(ROUNDS);
    on.holds("renew", &[], FEW_READS, async |store, round| {
        let batch: Vec<_> = held[round].iter().copied().map(renewal).collect();
        let renewed = store.renew(&batch).await.unwrap();
        assert!(renewed.iter().all(|answer| *answer == Renewed::Kept));
    })
    .await;
    let fail: Move = || retry(DAY);
    let cases: [Settle<'_>; 4] = [
        ("complete", first, complete, false, &[]),
        ("complete again", first, complete, true, &["ends_pkey"]),
        (
            "fail",
            second,
            fail,
            false,
            &["items_pkey", "troubles_pkey"],
        ),
        ("fail again", second, fail, true, &["ready_pkey"]),
    ];
    for (call, held, to, again, indexes) in cases {
        on.holds(call, indexes, FEW_READS, async |store, round| {
            let entries = held[round].iter();
            let batch: Vec<_> = entries.map(|hold| settlement(*hold, to())).collect();
            for answer in store.settle(&batch).await.unwrap() {
                assert_eq!(answer == Settled::AlreadySettled, again, "{call}");
            }
        })
        .await;
    }
}

async fn enqueues(on: &Filled) {
    let batch_of = |first: u128| (first..first + u128::from(FEW)).map(numbered);
    on.holds(
        "enqueue",
        &["items_pkey", "items_key", "ends_pkey"],
        FEW_READS,
        async |store, round| {
            let first = u128::try_from(round).unwrap() * 100;
            let batch = batch_of(50_000 + first).chain(batch_of(1_000_000 + first));
            let fates = store.enqueue(ORG, batch.collect()).await.unwrap();
            assert!(matches!(fates[0], Enqueued::IdExists(_)));
            assert!(matches!(fates[39], Enqueued::Inserted(_)));
        },
    )
    .await;
}

async fn looks(on: &Filled) {
    let key = |number| IdempotencyKey::new(id(number).as_uuid());
    on.holds(
        "get",
        &["items_pkey|items_org"],
        FEW_READS,
        async |store, round| {
            let number = 1 + 10_000 * u128::try_from(round).unwrap();
            assert!(store.get(ORG, id(number)).await.unwrap().is_some());
        },
    )
    .await;
    on.holds(
        "get by key",
        &["items_key"],
        FEW_READS,
        async |store, round| {
            let number = 1 + 10_000 * u128::try_from(round).unwrap();
            assert!(store.get_by_key(ORG, key(number)).await.unwrap().is_some());
        },
    )
    .await;
    let operators = async |store: &PostgresStore, round: usize| {
        // 5 and 15 in the last place: one waits, and one has failed.
        let number = 16 * (1 + u128::try_from(round).unwrap());
        let cancelled = store.cancel(ORG, id(90_001 + number), USER).await.unwrap();
        assert!(matches!(cancelled, Cancelled::Ended(_)), "{cancelled:?}");
        let queued = store.retry(ORG, id(5 + number), USER).await.unwrap();
        assert!(matches!(queued, Retried::Queued(_)), "{queued:?}");
    };
    on.holds(
        "cancel and retry",
        &["ready_pkey", "ends_pkey"],
        FEW_READS,
        operators,
    )
    .await;
    // Counts what there is, up to where counts stop.
    let rows_max = 4 * i64::try_from(COUNT_MAX).unwrap();
    let indexes = &["ready_order", "ends_failed"];
    on.holds("gauges", indexes, rows_max, async |store, _| {
        let gauges = store.gauges().await.unwrap();
        assert_eq!(gauges.lanes.len(), 2);
        assert!(gauges.dead > 3_000);
    })
    .await;
}

async fn lists(on: &Filled) {
    // What there is much of. What is done is below 40,000 that are not.
    let cases: [(Option<Status>, u128, &[&str]); 5] = [
        (None, u128::MAX, &["items_org"]),
        (
            Some(Status::Queued),
            u128::MAX,
            &["items_org", "ready_pkey"],
        ),
        (Some(Status::Claimed), u128::MAX, &["claims_pkey"]),
        (Some(Status::Failed), u128::MAX, &["ends_failed"]),
        (Some(Status::Done), 58_001, &["items_org", "ends_pkey"]),
    ];
    for (status, before, indexes) in cases {
        for kind_name in [None, Some("MAIL")] {
            let filter = Filter {
                status,
                kind: kind_name.map(kind),
                ..Filter::default()
            };
            let page = Page {
                before: Some(id(before)),
                limit: FEW,
            };
            let call = format!("list of {filter:?}");
            // Where the server knows nothing of the table, it sorts all claims before it looks at kinds.
            let rows_max = match status {
                Some(Status::Claimed) => HELD + FEW_READS,
                _ => FEW_READS,
            };
            on.holds(&call, indexes, rows_max, async |store, _| {
                let listed = store.list(ORG, &filter, &page).await.unwrap();
                assert_eq!(listed.items.len(), FEW as usize, "{call}");
            })
            .await;
        }
    }
    let page = Page {
        before: None,
        limit: FEW,
    };
    on.holds(
        "list of few",
        &["items_org"],
        FEW_READS,
        async |store, _| {
            let listed = store.list(OTHER, &Filter::default(), &page).await.unwrap();
            assert_eq!(listed.items.len(), 10);
            assert_eq!(listed.next, None);
        },
    )
    .await;
    // What there is none of: as far as a call may look for the page, and again for where it ended.
    let looks = 2 * i64::from(LIST_READ_MAX) + FEW_READS;
    for status in [None, Some(Status::Queued), Some(Status::Done)] {
        let filter = Filter {
            status,
            lane: Some(lane("slow")),
            kind: Some(kind("RARE")),
        };
        let call = format!("list of {filter:?}");
        on.holds(&call, &["items_org"], looks, async |store, _| {
            let listed = store.list(ORG, &filter, &page).await.unwrap();
            assert_eq!(listed.items, [], "{call}");
            // Ten of the highest are the other org's.
            let looked_to = 100_001 - 10 - u128::from(LIST_READ_MAX);
            assert_eq!(listed.next, Some(id(looked_to)), "{call}");
        })
        .await;
    }
}

async fn sweeps(on: &Filled) {
    on.holds(
        "maintenance due",
        &["ends_unaudited"],
        FEW_READS,
        async |store, _| {
            assert_eq!(store.maintenance_due(None, FEW).await.unwrap(), [ORG]);
        },
    )
    .await;
    on.holds("requeue", &["items_pkey"], FEW_READS, async |store, _| {
        let requeued = store.requeue_stale(ORG, &sweep_of(FEW)).await.unwrap();
        assert_eq!(requeued.recovered, FEW);
    })
    .await;
    on.holds("audit", &["ends_unaudited"], FEW_READS, async |store, _| {
        let dead = store.unaudited(ORG, FEW).await.unwrap();
        assert_eq!(dead.len(), FEW as usize);
        let marks: Vec<_> = dead.iter().map(|item| (item.id, item.claim_seq)).collect();
        store.mark_audited(ORG, &marks).await.unwrap();
    })
    .await;
    let indexes = &["ends_age", "ends_pkey", "items_pkey", "troubles_pkey"];
    on.holds("purge", indexes, FEW_READS, async |store, _| {
        let purged = store.purge(Duration::ZERO, FEW).await.unwrap();
        assert_eq!(purged, FEW);
    })
    .await;
}

/// A server that may compile statements takes longer for that than for running them.
#[tokio::test]
async fn no_statement_is_compiled() {
    let Some(on) = OneSchema::new().await else {
        return;
    };
    // Every statement asks the clock, which fails in a session that may compile.
    let text = format!(
        "create or replace function {}.clock() returns timestamptz language sql stable as
             'select case current_setting(''jit'') when ''off'' then pg_catalog.now()
                  else current_setting(''jit'')::timestamptz end'",
        on.schema
    );
    on.outsider.batch_execute(&text).await.unwrap();
    let address = with_parameter(on.address(), "options", "-c jit=on");
    for wakeup in [Wakeup::Listen, Wakeup::Poll] {
        let options = on.options().with_wakeup(wakeup);
        let store = leasehold_postgres::connect(&address, options)
            .await
            .unwrap();
        store.now().await.unwrap();
    }
}

/// However few claims there are by the statistics.
#[tokio::test]
async fn claims_are_looked_up_by_their_ids_and_never_read_through() {
    const MANY: u32 = 500;
    let Some(on) = filled(Wakeup::Listen).await else {
        return;
    };
    on.analyze().await;
    let name = format!("{}_held", on.schema);
    let address = with_parameter(on.address(), "application_name", &name);
    let store = leasehold_postgres::connect(&address, on.options())
        .await
        .unwrap();
    let before = on.counted().await;
    for round in 0..4 {
        let request = request_of(MANY);
        let claimed = store.claim(&request).await.unwrap();
        assert_eq!(claimed.len(), MANY as usize, "round {round}");
        let holds = || claimed.iter().map(|claimed| hold(&claimed.item));
        let renewed = store.renew(&holds().map(renewal).collect::<Vec<_>>()).await;
        assert!(renewed.unwrap().iter().all(|kept| *kept == Renewed::Kept));
        // Half of them complete, half fail, which are two statements.
        let batch: Vec<_> = holds()
            .enumerate()
            .map(|(place, hold)| {
                let to = if place % 2 == 0 {
                    complete()
                } else {
                    retry(DAY)
                };
                settlement(hold, to)
            })
            .collect();
        let settled = store.settle(&batch).await.unwrap();
        assert!(settled.iter().all(|one| matches!(one, Settled::Settled(_))));
    }
    drop(store);
    on.sessions_end(&name).await;
    let read = |counted: &BTreeMap<String, (i64, i64)>| counted["claims"].1;
    let read_through = read(&on.counted().await) - read(&before);
    assert_eq!(read_through, 0, "claims were read through");
}
