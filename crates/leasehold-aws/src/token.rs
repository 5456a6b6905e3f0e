//! Task tokens: who has one may end the task, so none is ever shown.

use std::fmt;
use std::sync::Arc;

/// The token of one try of one task. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TaskToken(Arc<str>);

/// The longest that the service takes.
const BYTES_MAX: usize = 2_048;

impl TaskToken {
    /// A token as a message carries it; `None` for what can be none: nothing, or more than the service
    /// takes.
    pub fn parse(text: &str) -> Option<Self> {
        let is_token = !text.trim().is_empty() && text.len() <= BYTES_MAX;
        is_token.then(|| Self(Arc::from(text)))
    }

    /// The token itself, for the service alone.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskToken(***)")
    }
}

impl fmt::Display for TaskToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
