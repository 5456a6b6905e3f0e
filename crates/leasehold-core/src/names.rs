//! Names that people choose: kinds, lanes and workers. Parsed once, where they enter.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name that breaks its rule. The text says which rule and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} is not valid: {rule}")]
pub struct NameError {
    what: &'static str,
    given: String,
    rule: &'static str,
}

impl NameError {
    pub(crate) fn new(what: &'static str, given: &str, rule: &'static str) -> Self {
        Self {
            what,
            given: crate::text::clip(given, 80),
            rule,
        }
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:expr, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses the name, refusing one that breaks the rule.
            ///
            /// # Errors
            /// [`NameError`] names the rule; the caller corrects the name.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(NameError::new($what, text, $rule))
                }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

name! {
    /// What to do: fixes the payload's shape and finds the handler.
    Kind, "kind",
    "use 1 to 64 bytes of A-Z, 0-9 and _, beginning with a letter, such as SEND_INVOICE",
    |text| {
        text.len() <= 64
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    }
}

name! {
    /// Where an item is routed: only workers of the lane claim it. `default` unless said.
    Lane, "lane",
    "use 1 to 100 bytes of a-z, A-Z, 0-9 and . _ : / - , beginning with a letter or digit",
    |text| {
        text.len() <= 100
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
    }
}

name! {
    /// One start of one worker process, for people to read. It is never a fence.
    WorkerId, "worker id",
    "use 1 to 200 printable characters without white space",
    |text| {
        !text.is_empty()
            && text.len() <= 200
            && text.chars().all(|c| !c.is_whitespace() && !c.is_control())
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self(Arc::from("default"))
    }
}
