//! The one rule for standard output: as a whole it is one JSON object.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, IgnoredAny};

use crate::text::{clip, escape};

/// How deep objects and lists may stand within each other: as deep as readers of JSON commonly go
/// before they give up.
const DEPTH_MAX: usize = 128;

/// How much of the decoder's words is kept: they may quote a string of any length.
const WHAT_BYTES_MAX: usize = 200;

/// One JSON object, as the text it was written in, without the white space around it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Object<'o> {
    text: &'o str,
    /// How many bytes stood before it.
    offset: usize,
}

/// What is wrong with an output. Positions count bytes from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it is empty")]
    Empty,
    #[error("it begins with a byte order mark")]
    ByteOrderMark,
    #[error("invalid UTF-8 at byte {at}")]
    NotText { at: usize },
    #[error("it is JSON and no object")]
    NotAnObject,
    #[error("more than {DEPTH_MAX} levels at byte {at}")]
    TooDeep { at: usize },
    #[error("{what} at byte {at}")]
    Malformed { what: String, at: usize },
    /// An object that says what it may not.
    #[error("{0}")]
    Refused(&'static str),
}

/// Applies the rule.
pub(super) fn object(output: &[u8]) -> Result<Object<'_>, Fault> {
    let output = std::str::from_utf8(output).map_err(|e| Fault::NotText {
        at: e.valid_up_to() + 1,
    })?;
    if output.starts_with('\u{feff}') {
        return Err(Fault::ByteOrderMark);
    }
    let text = output.trim_start_matches(WHITE_SPACE);
    let offset = output.len() - text.len();
    let text = text.trim_end_matches(WHITE_SPACE);
    if text.is_empty() {
        return Err(Fault::Empty);
    }
    let object = Object { text, offset };
    // Walks the value without recursion and without building it.
    object.decode::<IgnoredAny>()?;
    if !text.starts_with('{') {
        return Err(Fault::NotAnObject);
    }
    match too_deep(text) {
        Some(at) => Err(Fault::TooDeep {
            at: offset + at + 1,
        }),
        None => Ok(object),
    }
}

/// The white space of JSON.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

impl<'o> Object<'o> {
    pub(super) fn as_str(self) -> &'o str {
        self.text
    }

    /// Reads the object as a `T`.
    pub(super) fn decode<T: DeserializeOwned>(self) -> Result<T, Fault> {
        serde_json::from_str(self.text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let before: usize = self
                .text
                .split_inclusive('\n')
                .take(line.saturating_sub(1))
                .map(str::len)
                .sum();
            let what = error.to_string();
            let what = what
                .strip_suffix(&format!(" at line {line} column {column}"))
                .unwrap_or(&what);
            Fault::Malformed {
                what: clip(what, WHAT_BYTES_MAX),
                at: self.offset + before + column,
            }
        })
    }
}

/// Where valid JSON exceeds the depth, if it does.
fn too_deep(json: &str) -> Option<usize> {
    let mut depth = 0;
    let mut in_string = false;
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate() {
        if in_string {
            in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Some(at);
        }
    }
    None
}

/// A string of a command's, escaped.
///
/// Half of a surrogate pair is taken too: it is how Python writes a file's name that is not UTF-8, and
/// an error about such a file must not become another error.
#[derive(Debug)]
pub(super) struct Words(String);

impl Words {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Words {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As bytes, since a string could not hold the half.
        deserializer.deserialize_bytes(StringVisitor)
    }
}

struct StringVisitor;

impl de::Visitor<'_> for StringVisitor {
    type Value = Words;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Words, E> {
        Ok(Words(escape(bytes)))
    }
}
