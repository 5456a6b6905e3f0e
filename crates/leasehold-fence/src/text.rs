//! Bytes of a child as text that can be logged and stored: readable, valid, cut between characters.

use std::fmt::{self, Write as _};

/// Stands at the end of a text that [`clip`] has cut.
pub const CUT_MARKER: &str = "…";

/// Makes valid, printable text of whatever a child wrote.
///
/// - Valid UTF-8 is kept as it is, backslashes, `\n` and `\t` included.
/// - Every other control character becomes `\u{..}` with its number in hexadecimal: a zero character
///   is `\u{0}`, which a store can hold, and an escape sequence is `\u{1b}[31m`, which no terminal
///   obeys.
/// - So does every character that does not show and changes how others do: marks of direction, joiners of
///   no width, separators of lines and paragraphs. With them a text can look like another.
/// - Every byte that is not part of valid UTF-8 becomes `\x..` with two hexadecimal digits.
///
/// Nothing is dropped, and the order stays. The text names its bytes exactly unless they held one of
/// these escapes already, spelled out: the byte `0xff` and the four characters `\xff` give the same
/// text. Backslashes are not doubled, since they are common in real output and such spellings are
/// not. Escaping twice changes nothing more.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_hidden(character) {
                text.extend(character.escape_unicode());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether it does not show, or steers whoever shows it.
fn is_hidden(character: char) -> bool {
    let steers = matches!(
        character,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{feff}'
    );
    steers || character.is_control() && !matches!(character, '\n' | '\t')
}

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

/// The end of `text`, at most `bytes_max` bytes of it, on a character boundary; after a cut it begins
/// with a whole line, if one begins within the end.
pub(crate) fn last_lines(text: &str, bytes_max: usize) -> &str {
    let start = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    let end = &text[start..];
    if start == 0 || text.as_bytes()[start - 1] == b'\n' {
        return end;
    }
    match end.split_once('\n') {
        Some((_, lines)) if !lines.is_empty() => lines,
        _ => end,
    }
}

/// How many bytes at the end of `bytes` begin a character that the end cuts off: 0 to 3.
pub(crate) fn cut_at_end(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3);
    let unfinished = bytes[last..]
        .iter()
        .rev()
        .position(|byte| !is_continuation(*byte));
    match unfinished {
        Some(after) if characters_bytes(bytes[bytes.len() - 1 - after]) > after + 1 => after + 1,
        _ => 0,
    }
}

/// How many bytes at the start of `bytes` end a character that began before them: 0 to 3.
pub(crate) fn cut_at_start(bytes: &[u8]) -> usize {
    let bytes = &bytes[..bytes.len().min(4)];
    match bytes.iter().position(|byte| !is_continuation(*byte)) {
        Some(at) => at,
        // Four in a row are no part of any character.
        None if bytes.len() == 4 => 0,
        None => bytes.len(),
    }
}

fn is_continuation(byte: u8) -> bool {
    byte & 0b1100_0000 == 0b1000_0000
}

/// How long the character is that begins with `byte`.
fn characters_bytes(byte: u8) -> usize {
    match byte {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

/// A number with its thousands apart, for people.
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 1_000 {
            write!(f, "{},{:03}", Grouped(self.0 / 1_000), self.0 % 1_000)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

#[cfg(test)]
mod tests;
