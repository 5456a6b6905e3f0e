//! Keeps the values of secret payload fields, and passwords in addresses, out of what a child says.

use std::borrow::Cow;

use leasehold_core::JsonObject;
use serde_json::Value;

/// The payload fields whose values are nobody else's business, by name, at any depth and in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    /// In lower case.
    fields: Vec<String>,
}

/// What stands in place of a secret.
const MASK: &str = "***";

/// A shorter value stands in texts by chance, and masking it would make them unreadable.
const SECRET_BYTES_MIN: usize = 4;

impl Redaction {
    /// Of these fields.
    pub fn new(fields: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let fields = fields.into_iter();
        Self {
            fields: fields.map(|field| field.as_ref().to_lowercase()).collect(),
        }
    }

    /// The values to be masked in what is said of this payload: texts and numbers of at least four
    /// bytes under a field of these names, also within lists and objects there.
    pub(crate) fn secrets(&self, payload: &JsonObject) -> Secrets {
        let mut values = Vec::new();
        if !self.fields.is_empty()
            && let Ok(payload) = payload.decode::<Value>()
        {
            self.collect(&payload, false, &mut values);
        }
        // A value that holds another is masked as a whole.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        values.dedup();
        Secrets { values }
    }

    fn collect(&self, value: &Value, is_secret: bool, into: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let is_secret = is_secret || self.fields.contains(&name.to_lowercase());
                    self.collect(value, is_secret, into);
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.collect(value, is_secret, into);
                }
            }
            Value::String(text) if is_secret => into.push(text.clone()),
            Value::Number(number) if is_secret => into.push(number.to_string()),
            _ => {}
        }
        into.retain(|value| value.len() >= SECRET_BYTES_MIN);
    }
}

/// The secrets of one run. `Debug` shows none.
pub(crate) struct Secrets {
    /// The longest first.
    values: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Secrets").field(&self.values.len()).finish()
    }
}

impl Secrets {
    /// The text without the secrets, and without passwords in addresses (`scheme://user:password@host`).
    pub(crate) fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut masked = without_passwords(text);
        for value in &self.values {
            if masked.contains(value.as_str()) {
                masked = Cow::Owned(masked.replace(value.as_str(), MASK));
            }
        }
        masked
    }
}

/// Masks what stands between `://user:` and the last `@` before the host.
fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, address) = rest.split_at(at + "://".len());
        let ends = |c: char| c.is_whitespace() || "/?#\"'<>`".contains(c);
        let authority = &address[..address.find(ends).unwrap_or(address.len())];
        let password = authority
            .rfind('@')
            .and_then(|host| Some((authority[..host].find(':')? + 1, host)));
        out.push_str(before);
        match password {
            Some((from, to)) if from < to => {
                out.push_str(&address[..from]);
                out.push_str(MASK);
                rest = &address[to..];
            }
            _ => rest = address,
        }
    }
    if out.is_empty() {
        return Cow::Borrowed(text);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests;
