//! Payload fields that nobody is shown: masked by their names, wherever they stand.

use std::fmt;

use leasehold::JsonObject;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// What stands in place of a masked value.
pub(crate) const MASK: &str = "***";

/// The object with the value of every field of these names masked, at any depth; upper and lower case
/// are one. What is left is as it was written, but for white space.
pub(crate) fn redacted(object: &JsonObject, names: &[String]) -> JsonObject {
    if names.is_empty() {
        return object.clone();
    }
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let mut text = String::new();
    // What cannot be taken apart cannot be judged, either.
    if write(object.as_str(), &names, &mut text).is_err() {
        text = format!("{{\"{MASK}\":\"{MASK}\"}}");
    }
    JsonObject::from_stored(text)
}

fn write(json: &str, names: &[String], text: &mut String) -> Result<(), serde_json::Error> {
    match json.trim_start().as_bytes().first() {
        Some(b'{') => {
            let Fields(fields) = serde_json::from_str(json)?;
            text.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                text.push_str(&serde_json::to_string(key)?);
                text.push(':');
                if names.contains(&key.to_lowercase()) {
                    text.push_str(&serde_json::to_string(MASK)?);
                } else {
                    write(value.get(), names, text)?;
                }
            }
            text.push('}');
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(json)?;
            text.push('[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write(element.get(), names, text)?;
            }
            text.push(']');
        }
        _ => text.push_str(json.trim()),
    }
    Ok(())
}

/// The fields of an object in their order, each value as it was written.
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests;
