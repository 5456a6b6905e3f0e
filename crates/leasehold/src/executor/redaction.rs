//! Keeps the values of secret payload fields, and passwords in addresses, out of what a child says.

use std::borrow::Cow;
use std::collections::BTreeMap;

use leasehold_core::JsonObject;
use leasehold_fence::text::{CUT_MARKER, escape};
use serde_json::value::RawValue;

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

    /// And of this one.
    pub(crate) fn and(mut self, field: &str) -> Self {
        self.fields.push(field.to_lowercase());
        self
    }

    /// The values to be masked in what is said of this payload: texts and numbers of at least four
    /// bytes under a field of these names, also within lists and objects there.
    pub(crate) fn secrets(&self, payload: &JsonObject) -> Secrets {
        let mut values = Vec::new();
        if !self.fields.is_empty()
            && let Ok(payload) = payload.decode::<Box<RawValue>>()
        {
            self.collect(&payload, false, &mut values);
        }
        values.retain(|value| value.len() >= SECRET_BYTES_MIN);
        // A value that holds another is masked as a whole.
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Secrets { values }
    }

    /// As it is written, for a number would lose digits otherwise.
    fn collect(&self, value: &RawValue, is_secret: bool, into: &mut Vec<String>) {
        let text = value.get();
        // Each was checked as a whole, so that none of these fails.
        match text.as_bytes().first() {
            Some(b'{') => {
                let fields: BTreeMap<String, &RawValue> =
                    serde_json::from_str(text).unwrap_or_default();
                for (name, value) in fields {
                    let is_secret = is_secret || self.fields.contains(&name.to_lowercase());
                    self.collect(value, is_secret, into);
                }
            }
            Some(b'[') => {
                let values: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                for value in values {
                    self.collect(value, is_secret, into);
                }
            }
            Some(b'"') if is_secret => {
                into.push(within_quotes(text).to_owned());
                let decoded: String = serde_json::from_str(text).unwrap_or_default();
                into.extend(forms(&decoded));
            }
            Some(b'-' | b'0'..=b'9') if is_secret => into.push(text.to_owned()),
            _ => {}
        }
    }
}

/// How a text may be said: as it is, each of its lines, for lines are logged one by one, and within
/// JSON, by writers that keep characters beyond ASCII and by those that do not.
fn forms(text: &str) -> Vec<String> {
    let json = serde_json::to_string(text).unwrap_or_default();
    let json = within_quotes(&json);
    let mut ascii = String::new();
    for c in json.chars() {
        if c.is_ascii() {
            ascii.push(c);
        } else {
            let units = c.encode_utf16(&mut [0; 2]).to_vec();
            ascii.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    let lines = text.lines().map(|line| escape(line.trim().as_bytes()));
    lines
        .chain([escape(text.as_bytes()), json.to_owned(), ascii])
        .collect()
}

/// A string of JSON without its quotes.
fn within_quotes(string: &str) -> &str {
    let string = string.strip_prefix('"').unwrap_or(string);
    string.strip_suffix('"').unwrap_or(string)
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
    ///
    /// Of a secret that the text breaks off in, at the marker of a cut, the beginning is masked as well.
    pub(crate) fn mask<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut masked = without_passwords(text);
        for value in &self.values {
            if masked.contains(value.as_str()) {
                masked = Cow::Owned(masked.replace(value.as_str(), MASK));
            }
        }
        if masked.contains(CUT_MARKER) {
            let pieces: Vec<&str> = masked.split(CUT_MARKER).collect();
            let (last, cut) = pieces.split_last().unwrap_or((&"", &[]));
            let mut whole: Vec<Cow<'_, str>> = cut
                .iter()
                .map(|piece| self.without_beginning(piece))
                .collect();
            whole.push(Cow::Borrowed(last));
            masked = Cow::Owned(whole.join(CUT_MARKER));
        }
        masked
    }

    /// As [`Secrets::mask`], of a text that may break off at its end without saying so.
    pub(crate) fn mask_cut(&self, text: &str) -> String {
        let masked = self.mask(text);
        self.without_beginning(&masked).into_owned()
    }

    /// How long the longest is, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.values.first().map_or(0, String::len)
    }

    /// The text without the beginning of a secret, or of a password in an address, at its end.
    fn without_beginning<'t>(&self, text: &'t str) -> Cow<'t, str> {
        // Before a marker that stands in brackets.
        let end = text.trim_end_matches([' ', '[']);
        let begun = self.values.iter().find_map(|value| {
            let beginnings = value.char_indices().map(|(at, _)| &value[..at]).rev();
            let mut long_enough = beginnings.take_while(|begun| begun.len() >= SECRET_BYTES_MIN);
            long_enough.find(|begun| end.ends_with(begun))
        });
        let begun_bytes = begun.map_or_else(|| begun_password(end).len(), str::len);
        if begun_bytes == 0 {
            return Cow::Borrowed(text);
        }
        let kept = end.len() - begun_bytes;
        Cow::Owned(format!("{}{MASK}{}", &text[..kept], &text[end.len()..]))
    }
}

/// What ends an address's authority.
fn ends_authority(c: char) -> bool {
    c.is_whitespace() || "/?#\"'<>`".contains(c)
}

/// Masks what stands between `://user:` and the last `@` before the host.
fn without_passwords(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, address) = rest.split_at(at + "://".len());
        let authority = &address[..address.find(ends_authority).unwrap_or(address.len())];
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

/// What stands after `://user:` at the end of a text that breaks off there; a port is no password.
fn begun_password(text: &str) -> &str {
    let address = text.rfind("://").map_or("", |at| &text[at + "://".len()..]);
    if address.contains(ends_authority) || address.contains('@') {
        return "";
    }
    let password = address.split_once(':').map_or("", |(_, password)| password);
    if password.bytes().all(|byte| byte.is_ascii_digit()) {
        return "";
    }
    password
}

#[cfg(test)]
mod tests;
