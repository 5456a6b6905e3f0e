//! Directions of import: who of ours may depend on whom, and what the core must never link.
//!
//! Only normal dependencies count: a crate's tests may use whatever proves it.

use super::Finding;
use crate::workspace::Member;

pub(super) const CORE: &str = "leasehold-core";

/// Each of our crates and the ones it may import.
const ALLOWED: &[(&str, &[&str])] = &[
    (CORE, &[]),
    ("leasehold-fence", &[]),
    ("leasehold-sqlite", &[CORE]),
    ("leasehold-postgres", &[CORE]),
    ("leasehold", &[CORE, "leasehold-fence"]),
    ("leasehold-aws", &["leasehold", "leasehold-fence"]),
    ("leasehold-http", &["leasehold"]),
    (
        "leasehold-cli",
        &[
            CORE,
            "leasehold-fence",
            "leasehold-sqlite",
            "leasehold-postgres",
            "leasehold",
            "leasehold-aws",
            "leasehold-http",
        ],
    ),
    ("leasehold-testkit", &["leasehold", CORE]),
];

/// Runtimes, drivers, servers and sinks: with any of them the core would do I/O.
const BARRED_FROM_CORE: &[&str] = &[
    "tokio",
    "async-std",
    "smol",
    "rusqlite",
    "libsqlite3-sys",
    "tokio-postgres",
    "sqlx",
    "hyper",
    "axum",
    "reqwest",
    "tracing",
    "log",
    "prometheus-client",
];

/// Imports between our crates that are not in the table, and crates the table does not know.
/// Members outside `crates/`, such as examples, use what a user would.
pub(super) fn between_members(members: &[Member], read: impl Fn(&str) -> String) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members
        .iter()
        .filter(|member| member.manifest.starts_with("crates/"))
    {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member.name) else {
            findings.push(Finding {
                path: member.manifest.clone(),
                line: 1,
                what: format!("`{}` has no place in the order of imports", member.name),
                remedy: "give it one in xtask/src/tidy/edges.rs, or fold it into its user",
            });
            continue;
        };
        for dependency in &member.dependencies {
            let ours = members.iter().any(|other| other.name == *dependency);
            if ours && !allowed.contains(&dependency.as_str()) {
                findings.push(Finding {
                    path: member.manifest.clone(),
                    line: line_of(dependency, &read(&member.manifest)),
                    what: format!("`{}` may not import `{dependency}`", member.name),
                    remedy: "move the code to the side that may see both",
                });
            }
        }
    }
    findings
}

/// Crates the core must not link, in the listing of its dependency tree.
pub(super) fn core_is_pure(tree: &str) -> Vec<Finding> {
    BARRED_FROM_CORE
        .iter()
        .filter(|barred| {
            tree.lines()
                .any(|line| line.split(' ').next() == Some(**barred))
        })
        .map(|barred| Finding {
            path: format!("crates/{CORE}/Cargo.toml"),
            line: 1,
            what: format!("{CORE} links `{barred}`, and the core has no I/O and no runtime"),
            remedy: "find who brings it with `cargo tree -p leasehold-core -e normal -i`",
        })
        .collect()
}

fn line_of(dependency: &str, manifest: &str) -> usize {
    let names_it = |line: &str| {
        line.trim_start()
            .strip_prefix(dependency)
            .is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    manifest.lines().position(names_it).map_or(1, |at| at + 1)
}
