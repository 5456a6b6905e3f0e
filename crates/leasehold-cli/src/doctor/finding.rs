//! What a check says: how it is, and what to do about it.

use std::fmt::Display;

use serde::Serialize;

use crate::screen::{Field, Tone};

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Which check it is from, for programs as well.
    check: &'static str,
    pub(super) level: Level,
    what: String,
    fix: Option<String>,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// It is as it should be.
    Ok,
    /// A worker runs, and something may go wrong that need not.
    Warning,
    /// A worker cannot do without.
    Error,
}

impl Finding {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self {
            check,
            level: Level::Ok,
            what: what.into(),
            fix: None,
        }
    }

    pub(super) fn warning(check: &'static str, what: impl Into<String>, fix: &str) -> Self {
        Self {
            level: Level::Warning,
            ..Self::ok(check, what)
        }
        .with_fix(fix)
    }

    pub(super) fn error(check: &'static str, what: impl Into<String>, fix: &str) -> Self {
        Self {
            level: Level::Error,
            ..Self::ok(check, what)
        }
        .with_fix(fix)
    }

    /// With what could be done, also where nothing has to be.
    pub(super) fn with_fix(mut self, fix: impl Display) -> Self {
        self.fix = Some(fix.to_string());
        self
    }

    /// For people: what to try stands below.
    pub(super) fn lines(&self) -> Vec<Vec<Field>> {
        let finding = vec![self.tone(), self.check.into(), self.what.as_str().into()];
        let fix = self.fix.as_ref();
        let fix = fix.map(|fix| vec!["".into(), "".into(), format!("try: {fix}").into()]);
        [finding].into_iter().chain(fix).collect()
    }

    /// For pipes: what to try is a column, always.
    pub(super) fn columns(&self) -> Vec<Field> {
        let fix = self.fix.as_deref().unwrap_or_default();
        vec![
            self.tone(),
            self.check.into(),
            self.what.as_str().into(),
            fix.into(),
        ]
    }

    fn tone(&self) -> Field {
        match self.level {
            Level::Ok => Field::toned("ok", Tone::Good),
            Level::Warning => Field::toned("warning", Tone::Busy),
            Level::Error => Field::toned("error", Tone::Bad),
        }
    }
}
