//! Text that outlives its writer: cut on a character boundary, free of zero characters.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Stands at the end of a text that was cut.
pub const CUT_MARKER: &str = "… [cut]";

/// Cuts `text` to at most `bytes_max` bytes of UTF-8, marker included, never inside a character.
///
/// A limit too small to hold the marker yields as many whole characters as fit, unmarked.
pub fn clip(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let marker = if bytes_max > CUT_MARKER.len() {
        CUT_MARKER
    } else {
        ""
    };
    let kept = text.floor_char_boundary(bytes_max - marker.len());
    format!("{}{marker}", &text[..kept])
}

/// A note, an error message or a reason: at most [`ShortText::BYTES_MAX`] bytes of UTF-8.
///
/// Longer text is cut with a marker, and a zero character becomes U+FFFD, since not every store can
/// hold one. Making a `ShortText` therefore never fails, and never changes an item's outcome.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ShortText(Arc<str>);

impl ShortText {
    /// In bytes, not characters: it bounds the row.
    pub const BYTES_MAX: usize = 2_048;

    /// Keeps what fits of `text`.
    pub fn new(text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        if text.contains('\0') {
            Self(Arc::from(clip(
                &text.replace('\0', "\u{FFFD}"),
                Self::BYTES_MAX,
            )))
        } else if text.len() > Self::BYTES_MAX {
            Self(Arc::from(clip(text, Self::BYTES_MAX)))
        } else {
            Self(Arc::from(text))
        }
    }

    /// Keeps what fits of bytes that may not be text: what is not UTF-8 becomes U+FFFD.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::new(String::from_utf8_lossy(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for ShortText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl From<&str> for ShortText {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for ShortText {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

impl Serialize for ShortText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

#[cfg(test)]
mod tests;
