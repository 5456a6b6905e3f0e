//! One step: a file of SQL, and what it says of itself.
//!
//! A line that begins with `--!` tells the runner something:
//!
//! - `--! concurrent`: the step builds or drops indexes while others write, which no transaction can. Each of
//!   its statements names the index first, with `{schema}` for the schema:
//!   `create index concurrently NAME on {schema}.TABLE …` or `drop index concurrently if exists {schema}.NAME`.
//! - `--! contracts, for builds from N`: the step takes away what builds used whose last step came before N.
//!   They refuse to run on a schema that has it.

use sha2::{Digest as _, Sha256};

use crate::roles::Role;

/// One step of a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) version: i32,
    /// Whose tables it changes: a database without them does without it.
    pub(crate) role: Role,
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// What begins a line for the runner.
const MARK: &str = "--!";

const CONCURRENT: &str = "concurrent";
const CONTRACTS: &str = "contracts, for builds from ";

/// One statement of a concurrent step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexChange {
    /// Builds the index of that name.
    Build {
        name: &'static str,
        text: &'static str,
    },
    /// Drops one, if it is there.
    Drop { text: &'static str },
}

impl Step {
    pub(super) fn digest(&self) -> Vec<u8> {
        Sha256::digest(self.text.as_bytes()).to_vec()
    }

    pub(super) fn is_concurrent(&self) -> bool {
        self.marks().any(|mark| mark == CONCURRENT)
    }

    /// The oldest build that runs on a schema with this step, by its last step's version; 0: any.
    pub(super) fn build_min(&self) -> i32 {
        let builds = self.marks().filter_map(|mark| mark.strip_prefix(CONTRACTS));
        let builds = builds.filter_map(|version| version.parse().ok());
        builds.max().unwrap_or(0)
    }

    fn marks(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.text.lines();
        lines.filter_map(|line| line.strip_prefix(MARK).map(str::trim))
    }

    /// The statements of a concurrent step.
    ///
    /// # Errors
    /// The one that is not of the kind that such a step is made of.
    pub(super) fn index_changes(&self) -> Result<Vec<IndexChange>, &'static str> {
        let statements = self.text.split(';').map(without_comments);
        statements
            .filter(|statement| !statement.is_empty())
            .map(|text| index_change(text).ok_or(text))
            .collect()
    }
}

/// The statement without the lines of comment before it.
fn without_comments(text: &'static str) -> &'static str {
    let mut text = text.trim();
    while text.starts_with("--") {
        text = text.split_once('\n').map_or("", |(_, rest)| rest.trim());
    }
    text
}

fn index_change(text: &'static str) -> Option<IndexChange> {
    if text.starts_with("drop index concurrently if exists {schema}.") {
        return Some(IndexChange::Drop { text });
    }
    let rest = [
        "create index concurrently ",
        "create unique index concurrently ",
    ]
    .iter()
    .find_map(|beginning| text.strip_prefix(beginning))?;
    let (name, rest) = rest.split_once(char::is_whitespace)?;
    let is_ours = rest.starts_with("on {schema}.");
    is_ours.then_some(IndexChange::Build { name, text })
}
