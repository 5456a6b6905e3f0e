//! What is wrong with a setting: where it stands, what it is, and what to do about it.

use std::fmt;

use super::Origin;
use crate::failure::Failure;

/// One thing that is wrong, as one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// In the file, to put them in its order; what stands elsewhere comes first.
    line: Option<usize>,
    place: String,
    complaint: Complaint,
}

/// What is wrong and what to do; the reader of a value knows where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Complaint {
    what: String,
    remedy: String,
}

impl Complaint {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (what, remedy) = (what.into(), remedy.into());
        Self { what, remedy }
    }

    /// What a reader of arguments says, whose texts have three parts.
    pub(super) fn of(failure: &Failure) -> Self {
        let what = match failure.why() {
            Some(why) => format!("{}: {why}", failure.what()),
            None => failure.what().to_owned(),
        };
        Self::new(what, failure.how().unwrap_or("correct it"))
    }
}

impl Problem {
    /// In the file that is shown under this name.
    pub(super) fn in_file(file: &str, line: usize, complaint: Complaint) -> Self {
        Self {
            line: Some(line),
            place: format!("{file}:{line}"),
            complaint,
        }
    }

    /// Where the value came from.
    pub(super) fn at(origin: &Origin, file: &str, complaint: Complaint) -> Self {
        let line = match origin {
            Origin::File { line } => Some(*line),
            _ => None,
        };
        Self {
            line,
            place: origin.shown(file),
            complaint,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Complaint { what, remedy } = &self.complaint;
        write!(f, "{}: {what}; {remedy}", self.place)
    }
}

/// Puts them in the order of the file.
pub(super) fn in_order(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| problem.line);
}

/// Refuses the settings for all that is wrong with them, in the order of the file.
pub(super) fn refusal(mut problems: Vec<Problem>) -> Failure {
    in_order(&mut problems);
    let count = match problems.len() {
        1 => "a setting is".to_owned(),
        count => format!("{count} settings are"),
    };
    Failure::usage(format!("{count} not acceptable"))
        .listing(problems.iter().map(Problem::to_string))
        .remedy("correct them; docs/configuration.md describes every setting")
}
