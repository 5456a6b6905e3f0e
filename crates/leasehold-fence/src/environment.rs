//! The environment a child is given: an allow list, never the parent's whole one.

use std::collections::{BTreeMap, btree_map};
use std::ffi::{OsStr, OsString};
use std::fmt;

use crate::protocol;
use crate::text;

/// Handed over whenever the parent has them: what programs need to find others, speak the user's
/// language and tell the time.
pub const INHERITED: [&str; 5] = ["PATH", "HOME", "LANG", "TZ", "TMPDIR"];

/// Handed over as well: every name that begins so.
pub const INHERITED_PREFIX: &str = "LC_";

/// What a child is given as its environment, sorted by name.
///
/// A later value of a name replaces an earlier one, so the protocol's variables, which are added
/// last, win over all others. `Debug` shows the names and no values.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps of this process's environment the [inherited names](INHERITED) and the `declared` ones.
    ///
    /// A declared name is exact, or a prefix when it ends with `*`. A prefix never hands over the
    /// protocol's variables or a name beginning with `LEASEHOLD_`, which is where a worker's own
    /// settings and secrets live. A declared name that this process does not have is no error.
    ///
    /// # Errors
    /// [`EnvironmentRefused`] when a declared name is no name, is one of the protocol's, or would
    /// hand over everything. The declaration is to be corrected; trying again does not help.
    pub fn from_parent(declared: &[String]) -> Result<Self, EnvironmentRefused> {
        Self::selected(std::env::vars_os(), declared)
    }

    /// Sets a variable, replacing one of that name.
    ///
    /// # Errors
    /// [`EnvironmentRefused`] when the system could not hand over such a name or value.
    pub fn with(
        mut self,
        name: impl Into<OsString>,
        value: impl Into<OsString>,
    ) -> Result<Self, EnvironmentRefused> {
        let (name, value) = (name.into(), value.into());
        check_name(&name)?;
        if value.as_encoded_bytes().contains(&0) {
            return Err(EnvironmentRefused::ZeroInValue { name: shown(&name) });
        }
        let bytes = bytes_of(&name, &value);
        if bytes > protocol::ENVIRONMENT_STRING_BYTES_MAX {
            return Err(EnvironmentRefused::TooLarge {
                name: shown(&name),
                bytes,
            });
        }
        self.variables.insert(name, value);
        Ok(self)
    }

    /// The variables, sorted by name.
    pub fn iter(&self) -> btree_map::Iter<'_, OsString, OsString> {
        self.variables.iter()
    }

    /// The size of all strings together, each with its `=` and its final zero. The system counts them
    /// towards the same limit as the arguments.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| bytes_of(name, value)).sum()
    }

    fn selected(
        parent: impl IntoIterator<Item = (OsString, OsString)>,
        declared: &[String],
    ) -> Result<Self, EnvironmentRefused> {
        let declared = declared
            .iter()
            .map(|name| Declared::parse(name))
            .collect::<Result<Vec<_>, _>>()?;
        let is_wanted = |name: &OsStr| {
            INHERITED.iter().any(|inherited| name == *inherited)
                || starts_with(name, INHERITED_PREFIX)
                || declared.iter().any(|declared| declared.covers(name))
        };
        let variables = parent
            .into_iter()
            .filter(|(name, _)| is_wanted(name))
            .collect();
        Ok(Self { variables })
    }
}

impl IntoIterator for Environment {
    type Item = (OsString, OsString);
    type IntoIter = btree_map::IntoIter<OsString, OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.variables.into_iter()
    }
}

impl<'e> IntoIterator for &'e Environment {
    type Item = (&'e OsString, &'e OsString);
    type IntoIter = btree_map::Iter<'e, OsString, OsString>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")?;
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// Why a variable was refused. Names the variable, never its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvironmentRefused {
    /// Empty, or holding `=` or a zero character.
    #[error(
        "{name:?} is no name for an environment variable: it may not be empty or hold `=` or a zero character"
    )]
    Name {
        /// As it was given, clipped.
        name: String,
    },
    /// The value holds a zero character, at which the child would see it end.
    #[error(
        "the value of {name} holds a zero character, which an environment variable cannot; send it another way"
    )]
    ZeroInValue {
        /// Of the variable.
        name: String,
    },
    /// Larger than the system hands over.
    #[error(
        "{name} takes {bytes} bytes, and one environment variable may take {} with its name, `=` and final zero; put it into a file and hand over the path",
        protocol::ENVIRONMENT_STRING_BYTES_MAX
    )]
    TooLarge {
        /// Of the variable.
        name: String,
        /// With name, `=` and final zero.
        bytes: usize,
    },
    /// Set by the protocol for every child, so it cannot come from the parent.
    #[error("{name} is set by the worker for every child and cannot be declared; take it out")]
    OfTheProtocol {
        /// As it was declared.
        name: String,
    },
    /// A prefix that would hand over everything, or the worker's own settings.
    #[error(
        "{name:?} would hand over the worker's own settings and secrets; name the variables the command needs"
    )]
    TooWide {
        /// As it was declared.
        name: String,
    },
    /// A `*` that is not at the end.
    #[error(
        "{name:?} holds a `*` that is not its last character; a declared name is exact, or a prefix that ends with `*`"
    )]
    Star {
        /// As it was declared, clipped.
        name: String,
    },
}

/// A name that a kind declares.
enum Declared<'d> {
    Exact(&'d str),
    Prefix(&'d str),
}

impl<'d> Declared<'d> {
    fn parse(declared: &'d str) -> Result<Self, EnvironmentRefused> {
        let name = || shown(OsStr::new(declared));
        check_name(OsStr::new(declared))?;
        let parsed = match declared.strip_suffix('*') {
            Some(prefix) => Self::Prefix(prefix),
            None => Self::Exact(declared),
        };
        match parsed {
            Self::Exact(text) | Self::Prefix(text) if text.contains('*') => {
                Err(EnvironmentRefused::Star { name: name() })
            }
            Self::Exact(text) if protocol::is_protocol_variable(OsStr::new(text)) => {
                Err(EnvironmentRefused::OfTheProtocol { name: name() })
            }
            Self::Prefix(text) if text.is_empty() || text.starts_with(protocol::OWN_PREFIX) => {
                Err(EnvironmentRefused::TooWide { name: name() })
            }
            parsed => Ok(parsed),
        }
    }

    fn covers(&self, name: &OsStr) -> bool {
        match self {
            Self::Exact(exact) => name == *exact,
            Self::Prefix(prefix) => {
                starts_with(name, prefix)
                    && !starts_with(name, protocol::OWN_PREFIX)
                    && !protocol::is_protocol_variable(name)
            }
        }
    }
}

fn check_name(name: &OsStr) -> Result<(), EnvironmentRefused> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty() || bytes.iter().any(|byte| matches!(byte, b'=' | 0)) {
        return Err(EnvironmentRefused::Name { name: shown(name) });
    }
    Ok(())
}

fn starts_with(name: &OsStr, prefix: &str) -> bool {
    name.as_encoded_bytes().starts_with(prefix.as_bytes())
}

fn bytes_of(name: &OsStr, value: &OsStr) -> usize {
    name.len() + "=".len() + value.len() + "\0".len()
}

/// A name as it stands in an error: who writes `TOKEN=value` as a name shall not see the value in a
/// log.
fn shown(name: &OsStr) -> String {
    /// Real names are shorter.
    const BYTES_MAX: usize = 80;
    let bytes = name.as_encoded_bytes();
    let end = bytes
        .iter()
        .position(|byte| *byte == b'=')
        .map_or(bytes.len(), |at| at + 1);
    text::clip(&text::escape(&bytes[..end]), BYTES_MAX)
}

#[cfg(test)]
mod tests;
