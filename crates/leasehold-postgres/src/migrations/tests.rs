//! What a step may be: numbered in order, and nothing that takes from a build what it uses unless it says so.

use std::collections::BTreeSet;

use super::step::IndexChange;
use super::*;

fn step(text: &'static str) -> Step {
    Step {
        version: 900,
        role: Role::Queue,
        name: "0900_next",
        text,
    }
}

/// The statements in one line and lower case each, without comments.
fn statements(text: &str) -> Vec<String> {
    let lines = text.lines();
    let code: Vec<&str> = lines
        .map(|line| line.split_once("--").map_or(line, |(code, _)| code))
        .collect();
    let words = code.join(" ").to_lowercase();
    let statements = words.split(';');
    let statements = statements.map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
    statements.filter(|one| !one.is_empty()).collect()
}

/// What makes statements fail that a build without the step sends, or makes them wait for long; by looking at
/// words, so it may be mistaken about a step that is well meant: then it is to be written otherwise.
fn fault_of(step: &Step) -> Option<String> {
    let statements = statements(step.text);
    let made: BTreeSet<&str> = statements
        .iter()
        .filter_map(|one| one.strip_prefix("create table "))
        .filter_map(|rest| rest.split([' ', '(']).next())
        .collect();
    let contracts = step.build_min() > 0;
    let fault = |one: &String| {
        let one = format!(" {one} ");
        let table = one.split(" on ").nth(1).unwrap_or_default();
        let table = table.trim_start_matches("{schema}.");
        let table = table.split([' ', '(']).next().unwrap_or_default();
        let builds = one.contains(" create index ") || one.contains(" create unique index ");
        let is_of_new_table = made.contains(table);
        if builds && !is_of_new_table && !one.contains(" concurrently ") {
            return Some(format!("builds an index while nobody can write:{one}"));
        }
        if contracts {
            return None;
        }
        let takes = [
            " drop ",
            " rename ",
            " truncate ",
            " set not null ",
            " set data type ",
            " add constraint ",
            " add primary key",
            " add unique",
            " add check",
            " add foreign key",
        ];
        let is_needed = one.split(',').any(|part| {
            part.contains(" add column ")
                && part.contains(" not null")
                && !part.contains(" default ")
        });
        let retypes = one.contains(" alter column ") && one.contains(" type ");
        let narrows = one.contains(" create unique index ") && !is_of_new_table;
        let is_taken = takes.iter().any(|words| one.contains(words));
        (is_taken || is_needed || retypes || narrows)
            .then(|| format!("takes from earlier builds what they use, without saying so:{one}"))
    };
    statements.iter().find_map(fault)
}

#[test]
fn every_step_follows_the_one_before_and_leaves_earlier_builds_running() {
    for (before, step) in STEPS.iter().enumerate() {
        assert_eq!(
            usize::try_from(step.version),
            Ok(before + 1),
            "{}",
            step.name
        );
        assert!(
            step.name.starts_with(&format!("{:04}_", step.version)),
            "{}",
            step.name
        );
        assert_eq!(fault_of(step), None, "{}", step.name);
        assert!(step.build_min() <= step.version, "{}", step.name);
        for line in step.text.lines().filter(|line| line.starts_with("--!")) {
            let is_known =
                line == "--! concurrent" || line.starts_with("--! contracts, for builds from ");
            assert!(is_known, "{}: {line}", step.name);
        }
        if step.is_concurrent() {
            step.index_changes().unwrap();
        }
    }
}

#[test]
fn a_step_that_breaks_earlier_builds_is_found() {
    for text in [
        "alter table items drop column lane",
        "drop table markers",
        "alter table items\n    rename column lane to queue",
        "alter table items alter column priority type bigint",
        "alter table items alter column traceparent set not null",
        "alter table items add column colour text not null",
        "alter table items add column a text, add column b text not null, add column c text",
        "alter table items add constraint a_few check (max_attempts < 9)",
        "create unique index items_kind on items (kind)",
        "create index items_kind on items (kind)",
        "--! concurrent\ncreate unique index concurrently items_kind on {schema}.items (kind)",
    ] {
        assert!(fault_of(&step(text)).is_some(), "{text}");
    }
    for text in [
        "alter table items add column colour text, add column weight int not null default 0",
        "create table colours (name text not null); create unique index colours_name on colours (name)",
        "--! concurrent\ncreate index concurrently items_kind on {schema}.items (kind)",
        "--! contracts, for builds from 12\nalter table items drop column lane -- at last",
        "create or replace view work_items as select 1",
    ] {
        assert_eq!(fault_of(&step(text)), None, "{text}");
    }
}

#[test]
fn a_step_says_of_itself_how_it_is_applied_and_for_whom() {
    let plain = step("-- Plain.\ncreate table colours (name text);");
    assert!(!plain.is_concurrent());
    assert_eq!(plain.build_min(), 0);
    assert_eq!(
        step("--! contracts, for builds from 12\ndrop table a;").build_min(),
        12
    );
    let concurrent = step(
        "--! concurrent\n-- Why.\ncreate unique index concurrently a_b on {schema}.a (b);\n\
         drop index concurrently if exists {schema}.a_c;\n",
    );
    assert!(concurrent.is_concurrent());
    let text = "create unique index concurrently a_b on {schema}.a (b)";
    let drop = "drop index concurrently if exists {schema}.a_c";
    assert_eq!(
        concurrent.index_changes(),
        Ok(vec![
            IndexChange::Build { name: "a_b", text },
            IndexChange::Drop { text: drop }
        ])
    );
    for other in [
        "create index a_b on {schema}.a (b)",
        "create index concurrently on {schema}.a (b)",
        "create index concurrently a_b on a (b)",
        "update {schema}.a set b = 1",
    ] {
        assert_eq!(step(other).index_changes(), Err(other));
    }
}

#[test]
fn schemas_of_one_database_do_not_wait_for_each_other() {
    let key = |name| lock::key(&Schema::parse(name).unwrap());
    assert_ne!(key("leasehold"), key("other"));
    assert_eq!(key("leasehold"), key("leasehold"));
}
