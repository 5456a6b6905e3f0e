//! What is kept of a child's output: bounded, whatever the child writes, and without I/O.
//!
//! Standard output is data and is kept whole up to a limit, past which the run is over. Standard
//! error is talk: its beginning and its end are kept, the middle is counted, and the child writes on.

use std::borrow::Cow;
use std::collections::VecDeque;

use crate::text::{Grouped, cut_at_end, cut_at_start, escape};

/// How much of standard output is taken unless a caller says otherwise: as much as a queue takes for
/// a result.
pub const STDOUT_BYTES_MAX: usize = 1 << 20;

/// How much of standard error is kept unless a caller says otherwise: a few thousand lines, enough to
/// find out why, for each of hundreds of children at once.
pub const STDERR_BYTES_KEPT: usize = 256 << 10;

/// Where a line of standard error is cut unless a caller says otherwise: sinks of logs cut or refuse
/// longer ones.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// Standard output, whole up to a limit.
#[derive(Debug)]
pub struct StdoutCapture {
    bytes: Vec<u8>,
    limit: usize,
}

impl StdoutCapture {
    /// Keeps at most `limit` bytes. Memory is taken as output comes, and never beyond the limit.
    pub fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Keeps what fits of `chunk`, and answers whether the limit is passed: some output was not kept,
    /// so that what is kept is no result.
    #[must_use = "past the limit the child is to be killed"]
    pub fn push(&mut self, chunk: &[u8]) -> bool {
        let fits = chunk.len().min(self.limit - self.bytes.len());
        let more = room(self.bytes.len(), self.bytes.capacity(), fits, self.limit);
        self.bytes.reserve_exact(more);
        self.bytes.extend_from_slice(&chunk[..fits]);
        fits < chunk.len()
    }

    /// What was kept.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Default for StdoutCapture {
    fn default() -> Self {
        Self::new(STDOUT_BYTES_MAX)
    }
}

/// Standard error: the first quarter of the limit from the beginning, the rest from the end.
#[derive(Debug)]
pub struct StderrCapture {
    head: Vec<u8>,
    head_limit: usize,
    tail: VecDeque<u8>,
    tail_limit: usize,
    total_bytes: u64,
}

impl StderrCapture {
    /// Keeps at most `limit` bytes. Memory is taken as output comes, and never beyond the limit.
    pub fn new(limit: usize) -> Self {
        let head_limit = limit / 4;
        Self {
            head: Vec::new(),
            head_limit,
            tail: VecDeque::new(),
            tail_limit: limit - head_limit,
            total_bytes: 0,
        }
    }

    /// Keeps of `chunk` what belongs to the beginning or, so far, to the end; the rest is counted.
    pub fn push(&mut self, chunk: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(chunk.len() as u64);

        let (first, chunk) = chunk.split_at(chunk.len().min(self.head_limit - self.head.len()));
        let more = room(
            self.head.len(),
            self.head.capacity(),
            first.len(),
            self.head_limit,
        );
        self.head.reserve_exact(more);
        self.head.extend_from_slice(first);

        let chunk = &chunk[chunk.len().saturating_sub(self.tail_limit)..];
        let passed = (self.tail.len() + chunk.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..passed);
        let more = room(
            self.tail.len(),
            self.tail.capacity(),
            chunk.len(),
            self.tail_limit,
        );
        self.tail.reserve_exact(more);
        self.tail.extend(chunk);
    }

    /// How much the child wrote, kept or not.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// What was kept, [escaped](escape), with a line between beginning and end that says how much was
    /// left out, if anything was.
    pub fn to_text(&self) -> String {
        if self.left_out() == 0 {
            return escape(&self.kept());
        }
        let tail = self.tail_bytes();
        let head = &self.head[..self.head.len() - cut_at_end(&self.head)];
        let tail = &tail[cut_at_start(&tail)..];
        let left_out = self.total_bytes - head.len() as u64 - tail.len() as u64;

        let mut text = escape(head);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&left_out_marker(left_out));
        text.push('\n');
        text.push_str(&escape(tail));
        text
    }

    /// The end as [escaped](escape) text of at most `bytes_max` bytes, beginning with a whole
    /// character.
    pub fn tail(&self, bytes_max: usize) -> String {
        let is_whole = self.left_out() == 0;
        let kept = if is_whole {
            Cow::Owned(self.kept())
        } else {
            self.tail_bytes()
        };
        let mut end = &kept[kept.len().saturating_sub(bytes_max)..];
        if !is_whole || end.len() < kept.len() {
            end = &end[cut_at_start(end)..];
        }
        let text = escape(end);
        text[text.ceil_char_boundary(text.len().saturating_sub(bytes_max))..].to_owned()
    }

    fn left_out(&self) -> u64 {
        self.total_bytes - self.head.len() as u64 - self.tail.len() as u64
    }

    /// Beginning and end, when nothing is missing between them.
    fn kept(&self) -> Vec<u8> {
        let mut kept = Vec::with_capacity(self.head.len() + self.tail.len());
        kept.extend_from_slice(&self.head);
        kept.extend(&self.tail);
        kept
    }

    fn tail_bytes(&self) -> Cow<'_, [u8]> {
        match self.tail.as_slices() {
            (tail, []) => Cow::Borrowed(tail),
            (older, newer) => Cow::Owned([older, newer].concat()),
        }
    }
}

impl Default for StderrCapture {
    fn default() -> Self {
        Self::new(STDERR_BYTES_KEPT)
    }
}

/// A complete line, without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'l> {
    /// As the child wrote it, up to where it was cut.
    pub bytes: &'l [u8],
    /// How many more bytes it had.
    pub left_out: u64,
}

impl Line<'_> {
    /// The line as [escaped](escape) text, saying what was left out.
    pub fn to_text(&self) -> String {
        if self.left_out == 0 {
            return escape(self.bytes);
        }
        let cut = cut_at_end(self.bytes);
        let text = escape(&self.bytes[..self.bytes.len() - cut]);
        format!("{text} {}", left_out_marker(self.left_out + cut as u64))
    }
}

/// Splits what is pushed into lines.
///
/// A line ends with `\n`, `\r\n` or a lone `\r`, with which programs redraw their progress. A lone
/// `\r` that ends nothing makes no line; an empty line before `\n` does.
#[derive(Debug)]
pub struct Lines {
    line: Vec<u8>,
    left_out: u64,
    line_bytes_max: usize,
    /// The line was ended by a `\r` that a `\n` may follow as part of the same end.
    newline_is_due: bool,
}

impl Lines {
    /// Cuts lines at `line_bytes_max` bytes; the rest of a longer line is counted and forgotten.
    pub fn new(line_bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            left_out: 0,
            line_bytes_max,
            newline_is_due: false,
        }
    }

    /// Takes a chunk and calls `each` for every line it completes.
    pub fn push(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        for piece in chunk.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (body, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), body)) => (body, Some(*end)),
                _ => (piece, None),
            };
            if !body.is_empty() {
                self.newline_is_due = false;
                self.keep(body);
            }
            match end {
                Some(b'\n') if self.newline_is_due => self.newline_is_due = false,
                Some(b'\n') => self.complete(&mut each),
                Some(_) => {
                    self.newline_is_due = self.is_begun();
                    if self.is_begun() {
                        self.complete(&mut each);
                    }
                }
                None => {}
            }
        }
    }

    /// Calls `each` for the last line if it was never ended.
    pub fn finish(mut self, mut each: impl FnMut(Line<'_>)) {
        if self.is_begun() {
            self.complete(&mut each);
        }
    }

    fn is_begun(&self) -> bool {
        !self.line.is_empty() || self.left_out > 0
    }

    fn keep(&mut self, body: &[u8]) {
        let fits = body.len().min(self.line_bytes_max - self.line.len());
        self.line.extend_from_slice(&body[..fits]);
        self.left_out = self.left_out.saturating_add((body.len() - fits) as u64);
    }

    fn complete(&mut self, each: &mut impl FnMut(Line<'_>)) {
        each(Line {
            bytes: &self.line,
            left_out: self.left_out,
        });
        self.line.clear();
        self.left_out = 0;
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new(LINE_BYTES_MAX)
    }
}

fn left_out_marker(bytes: u64) -> String {
    format!("[… {} bytes left out …]", Grouped(bytes))
}

/// How much to reserve so that `len + added` fits: doubling, as a vector would, but within `limit`.
fn room(len: usize, capacity: usize, added: usize, limit: usize) -> usize {
    if len + added <= capacity {
        0
    } else {
        (len + added).max(2 * capacity).min(limit) - len
    }
}

#[cfg(test)]
mod tests;
