//! JSON objects kept as the text they were written in.
//!
//! A payload or a result is forwarded exactly as its writer wrote it: re-encoding would change large
//! numbers and the order of keys. What a store could not hold is refused here, once, with the place.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Why a text is not an acceptable JSON object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON, or holding an escape that is no character.
    #[error("not valid JSON: {0}")]
    Malformed(String),
    /// JSON, but a list, a text, a number, a truth value or null.
    #[error("a JSON object is needed, such as {{\"id\": 7}}, not {0}")]
    NotAnObject(&'static str),
    /// A zero character, written `\u0000`, in a key or a value.
    #[error("the zero character (\\u0000) cannot be stored; it is in {place}")]
    ZeroCharacter {
        /// Where, as a path from the root such as `$.name[2]`.
        place: String,
    },
    /// One object names a key twice: readers would disagree about which value counts.
    #[error("a key stands twice in one object; it is {place}")]
    DuplicateKey {
        /// Which, as a path from the root.
        place: String,
    },
    /// More bytes than allowed.
    #[error(
        "{bytes} bytes of JSON, and the limit is {bytes_max} bytes; store the data elsewhere and send its id"
    )]
    TooLarge {
        /// How many there were.
        bytes: usize,
        /// How many may be.
        bytes_max: usize,
    },
}

/// One JSON object, as text. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct JsonObject(Arc<str>);

impl JsonObject {
    /// The limit on payloads and results unless a caller sets a smaller one: 1 MiB.
    pub const BYTES_MAX: usize = 1 << 20;

    /// `{}`.
    pub fn empty() -> Self {
        Self(Arc::from("{}"))
    }

    /// Checks `text` and keeps it as written, white space at either end removed.
    ///
    /// # Errors
    /// [`JsonError`] says what is wrong and where; nothing is changed to make it fit.
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        Self::parse_within(text, Self::BYTES_MAX)
    }

    /// As [`JsonObject::parse`], under a limit of the caller's own.
    ///
    /// # Errors
    /// As [`JsonObject::parse`].
    pub fn parse_within(text: &str, bytes_max: usize) -> Result<Self, JsonError> {
        let text = text.trim_matches([' ', '\t', '\n', '\r']);
        if text.len() > bytes_max {
            return Err(JsonError::TooLarge {
                bytes: text.len(),
                bytes_max,
            });
        }
        check(text)?;
        Ok(Self(Arc::from(text)))
    }

    /// Encodes a value that serialises to a JSON object.
    ///
    /// # Errors
    /// As [`JsonObject::parse`]; a unit struct is refused too, since it serialises to `null`: give
    /// it braces (`struct Tick {}`).
    pub fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        let text = serde_json::to_string(value).map_err(|e| JsonError::Malformed(e.to_string()))?;
        Self::parse(&text)
    }

    /// Wraps text that passed [`JsonObject::parse`] before it was stored.
    pub fn from_stored(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text, as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Decodes into the shape that a kind fixes.
    ///
    /// # Errors
    /// The decoder's own words, which name the field and the position.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, JsonError> {
        serde_json::from_str(&self.0).map_err(|e| JsonError::Malformed(e.to_string()))
    }
}

impl Default for JsonObject {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for JsonObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonObject({} bytes)", self.0.len())
    }
}

impl Serialize for JsonObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

fn check(text: &str) -> Result<(), JsonError> {
    let mut fault = None;
    let mut decoder = serde_json::Deserializer::from_str(text);
    let seed = Place {
        path: &mut String::from("$"),
        fault: &mut fault,
    };
    let shape = seed
        .deserialize(&mut decoder)
        .and_then(|shape| decoder.end().map(|()| shape))
        .map_err(|e| JsonError::Malformed(e.to_string()))?;
    match (shape, fault) {
        (_, Some(fault)) => Err(fault),
        (Shape::Object, None) => Ok(()),
        (Shape::Other(what), None) => Err(JsonError::NotAnObject(what)),
    }
}

enum Shape {
    Object,
    Other(&'static str),
}

/// Walks a value, remembering the path, and notes the first thing in it that is refused.
struct Place<'a> {
    path: &'a mut String,
    fault: &'a mut Option<JsonError>,
}

impl Place<'_> {
    fn note_zero(&mut self, text: &str) {
        if self.fault.is_none() && text.contains('\0') {
            let place = self.path.replace('\0', "\\u0000");
            *self.fault = Some(JsonError::ZeroCharacter { place });
        }
    }

    fn note_double(&mut self) {
        if self.fault.is_none() {
            let place = self.path.clone();
            *self.fault = Some(JsonError::DuplicateKey { place });
        }
    }
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Shape;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Shape, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Shape, E> {
        Ok(Shape::Other("a truth value"))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Shape, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Shape, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Shape, E> {
        Ok(Shape::Other("a number"))
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Other("null"))
    }

    fn visit_str<E>(mut self, text: &str) -> Result<Shape, E> {
        self.note_zero(text);
        Ok(Shape::Other("a text"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let length = self.path.len();
        for index in 0_usize.. {
            let _ = write!(self.path, "[{index}]");
            let found = seq.next_element_seed(Place {
                path: self.path,
                fault: self.fault,
            })?;
            self.path.truncate(length);
            if found.is_none() {
                break;
            }
        }
        Ok(Shape::Other("a list"))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Shape, A::Error> {
        let length = self.path.len();
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let _ = write!(self.path, ".{key}");
            self.note_zero(&key);
            if !seen.insert(key) {
                self.note_double();
            }
            map.next_value_seed(Place {
                path: self.path,
                fault: self.fault,
            })?;
            self.path.truncate(length);
        }
        Ok(Shape::Object)
    }
}

#[cfg(test)]
mod tests;
