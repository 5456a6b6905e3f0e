//! `cargo xtask tidy`: the rules no compiler knows.
//!
//! Every text rule is a function from a file's path and text to its findings, so that a test is a
//! sample and nothing else. [`sources`] holds those for Rust files, [`words`] those for any file,
//! [`edges`] the directions of import.

mod edges;
mod sources;
mod words;

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, cargo, shown};

/// One broken rule at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    what: String,
    /// What to do about it.
    remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}; {}",
            self.path, self.line, self.what, self.remedy
        )
    }
}

type Rule = fn(path: &str, text: &str) -> Vec<Finding>;

const RULES: &[Rule] = &[
    sources::length,
    sources::module_docs,
    sources::sleeps_in_tests,
    sources::ignored_tests,
    sources::allowed_lints,
    words::markers,
    words::machine_paths,
];

/// These files spell out what they look for.
const RULE_SOURCES: &str = "xtask/src/tidy/";

/// Checks the whole workspace and lists everything found.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut findings = edges::between_members(&workspace.members, |manifest| {
        fs::read_to_string(workspace.root.join(manifest)).unwrap_or_default()
    });
    findings.extend(edges::core_is_pure(&core_tree(&workspace.root)?));
    let paths = tracked_files(&workspace.root)?;
    for path in &paths {
        // A file deleted but not yet committed is still listed, and a picture is not text.
        let Ok(text) = fs::read_to_string(workspace.root.join(path)) else {
            continue;
        };
        findings.extend(check(path, &text));
    }
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => {
            println!("tidy: {} files, nothing found", paths.len());
            Ok(())
        }
        1 => bail!("tidy: 1 finding"),
        several => bail!("tidy: {several} findings"),
    }
}

fn check(path: &str, text: &str) -> Vec<Finding> {
    if path.starts_with(RULE_SOURCES) {
        let mut findings = sources::length(path, text);
        findings.extend(sources::module_docs(path, text));
        return findings;
    }
    RULES.iter().flat_map(|rule| rule(path, text)).collect()
}

/// Files of the change in hand too, so that a finding shows before the commit.
fn tracked_files(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root);
    let listing = output(&mut git)?;
    Ok(listing
        .split('\0')
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Everything the core links with every feature on, one `name` a line. Asked of the core alone,
/// because features that other members turn on are not the core's doing.
fn core_tree(root: &Path) -> Result<String> {
    output(cargo(root).args([
        "tree",
        "--package",
        edges::CORE,
        "--edges",
        "normal",
        "--all-features",
        "--target",
        "all",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))
}

fn output(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` failed ({}): {}", output.status, complaint.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no text"))
}

#[cfg(test)]
mod tests;
