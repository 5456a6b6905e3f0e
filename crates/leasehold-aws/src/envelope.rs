//! What a message must be: one JSON object with a task token, whose other fields are the consumer's.

use std::fmt;

use leasehold::JsonObject;
use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::token::TaskToken;

/// The field of a request that holds its token, unless the settings say otherwise.
pub(crate) const TOKEN_FIELD: &str = "task_token";

/// A message that can be worked on.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// Whom to tell.
    pub token: TaskToken,
    /// The body, byte for byte: what a handler is given.
    pub request: JsonObject,
}

/// A message that cannot.
#[derive(Debug, Clone)]
pub struct Malformed {
    /// Whom to tell all the same.
    pub token: Option<TaskToken>,
    /// What is wrong, without a word of the body.
    pub reason: String,
}

impl Envelope {
    /// Reads a body.
    ///
    /// Only the outer object is looked at: what is inside the fields is the handler's to judge. A name
    /// that stands twice in it is refused, since its readers would disagree about which one counts.
    ///
    /// # Errors
    /// [`Malformed`], with the token if there is exactly one and it is a text that is not empty.
    pub fn parse(body: &str, token_field: &str) -> Result<Self, Malformed> {
        let fields = match top_level(body) {
            Ok(fields) => fields,
            Err(reason) => {
                return Err(Malformed {
                    token: None,
                    reason,
                });
            }
        };
        let mut tokens = fields.iter().filter(|(name, _)| name == token_field);
        let token = match (tokens.next(), tokens.next()) {
            (Some((_, token)), None) => token,
            (None, _) => {
                let reason = format!("it has no field {token_field}");
                return Err(Malformed {
                    token: None,
                    reason,
                });
            }
            (Some(_), Some(_)) => {
                let reason = format!("the field {token_field} stands in it twice");
                return Err(Malformed {
                    token: None,
                    reason,
                });
            }
        };
        let token: Option<TaskToken> = serde_json::from_str(token.get())
            .ok()
            .and_then(|text: String| TaskToken::parse(&text));
        let Some(token) = token else {
            let reason = format!("its field {token_field} is no token");
            return Err(Malformed {
                token: None,
                reason,
            });
        };
        let mut names: Vec<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Malformed {
                token: Some(token),
                reason: "a field stands in it twice".to_owned(),
            });
        }
        Ok(Self {
            token,
            request: JsonObject::from_stored(body),
        })
    }
}

/// The fields of the outer object, in their order.
fn top_level(body: &str) -> Result<Vec<(String, Box<RawValue>)>, String> {
    struct Fields;

    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<(String, Box<RawValue>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(field) = map.next_entry()? {
                fields.push(field);
            }
            Ok(fields)
        }
    }

    let mut decoder = serde_json::Deserializer::from_str(body);
    let fields = decoder
        .deserialize_map(Fields)
        .and_then(|fields| decoder.end().map(|()| fields));
    // The decoder's own words may quote a value of the body.
    fields.map_err(|error| {
        let what = match error.classify() {
            serde_json::error::Category::Data => "it is no JSON object",
            _ => "it is not JSON",
        };
        format!("{what} (line {}, column {})", error.line(), error.column())
    })
}

/// The beginning of a body as it may stand in a log: its punctuation, and `x` or `0` for what it says.
pub(crate) fn shape(body: &str) -> String {
    /// Enough to tell JSON from text, and one producer from another.
    const CHARACTERS_MAX: usize = 120;
    let mut characters = body.chars();
    let mut shape: String = characters
        .by_ref()
        .take(CHARACTERS_MAX)
        .map(|c| match c {
            '0'..='9' => '0',
            c if c.is_ascii_punctuation() => c,
            ' ' => ' ',
            _ => 'x',
        })
        .collect();
    if characters.next().is_some() {
        shape.push('…');
    }
    shape
}

#[cfg(test)]
mod tests;
