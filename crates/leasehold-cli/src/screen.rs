//! How answers are printed: tables for people, columns for pipes, objects for programs.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use comfy_table::{Attribute, Cell, Color, ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::Failure;

/// Where a command prints.
#[derive(Debug)]
pub(crate) struct Screen {
    is_json: bool,
    is_terminal: bool,
    out_colour: ColorChoice,
    talk_colour: ColorChoice,
}

/// The version of every object that `--json` prints. It rises when a field changes its meaning or
/// goes away; new fields may come at any time.
pub(crate) const SCHEMA: u32 = 1;

impl Screen {
    /// For this process's standard streams.
    pub(crate) fn new(is_json: bool) -> Self {
        Self {
            is_json,
            is_terminal: io::stdout().is_terminal(),
            out_colour: AutoStream::choice(&io::stdout()),
            talk_colour: AutoStream::choice(&io::stderr()),
        }
    }

    /// Whether objects are asked for.
    pub(crate) const fn is_json(&self) -> bool {
        self.is_json
    }

    /// Whether a person is looking.
    pub(crate) const fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Prints one object.
    pub(crate) fn object(&self, document: &impl Serialize) -> Result<(), Failure> {
        let mut out = BufWriter::new(io::stdout().lock());
        if self.is_terminal {
            let text = serde_json::to_string_pretty(document).map_err(io::Error::from)?;
            out.write_all(plain_json(&text).as_bytes())?;
        } else {
            serde_json::to_writer(&mut out, document).map_err(io::Error::from)?;
        }
        out.write_all(b"\n")?;
        out.flush()?;
        Ok(())
    }

    /// Prints one object of these fields, behind the version that every object begins with.
    pub(crate) fn answer(&self, fields: &serde_json::Value) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Document<'a> {
            schema: u32,
            #[serde(flatten)]
            fields: &'a serde_json::Value,
        }
        let schema = SCHEMA;
        self.object(&Document { schema, fields })
    }

    /// Prints JSON that others wrote: as it is into a pipe.
    pub(crate) fn json(&self, text: &str) -> Result<(), Failure> {
        if self.is_terminal {
            self.text(&plain_json(text))
        } else {
            self.text(text)
        }
    }

    /// Prints a table: with a header on a terminal, as bare tab-separated columns in a pipe.
    pub(crate) fn table(&self, header: &[&str], rows: &[Vec<Field>]) -> Result<(), Failure> {
        if !self.is_terminal {
            return self.text(&columns(rows));
        }
        let mut table = laid_out(header, rows);
        fit(&mut table);
        // Whether colours are shown is decided where the text is written.
        table.enforce_styling();
        self.text(&trimmed(&table))
    }

    /// Prints text.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        let mut out = AutoStream::new(io::stdout().lock(), self.out_colour);
        out.write_all(text.as_bytes())?;
        if !text.is_empty() && !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()?;
        Ok(())
    }

    /// Says something to the person, beside the data. Nobody may be listening.
    pub(crate) fn talk(&self, text: &str) {
        let mut out = AutoStream::new(io::stderr().lock(), self.talk_colour);
        let _ = writeln!(out, "{text}");
    }

    /// Says what stood in the way.
    pub(crate) fn refuse(&self, failure: &Failure) {
        if failure.is_quiet() {
            return;
        }
        let text = if self.is_json {
            refusal_object(failure)
        } else {
            refusal_lines(failure)
        };
        self.talk(&text);
    }
}

/// One cell: what it says, and how it stands out.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    text: String,
    tone: Tone,
}

/// How a cell stands out on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Not at all.
    Plain,
    /// It went well.
    Good,
    /// It is under way.
    Busy,
    /// It went wrong.
    Bad,
}

impl Field {
    pub(crate) fn toned(text: &(impl ToString + ?Sized), tone: Tone) -> Self {
        Self {
            text: plain(&text.to_string()),
            tone,
        }
    }
}

impl<T: ToString> From<T> for Field {
    fn from(text: T) -> Self {
        Self::toned(&text, Tone::Plain)
    }
}

/// A table without colour, as wide as it needs to be.
#[cfg(test)]
pub(crate) fn table(header: &[&str], rows: &[Vec<Field>]) -> String {
    let mut table = laid_out(header, rows);
    table.force_no_tty();
    trimmed(&table)
}

fn laid_out(header: &[&str], rows: &[Vec<Field>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    if !header.is_empty() {
        let bold = |name: &&str| Cell::new(name.to_uppercase()).add_attribute(Attribute::Bold);
        table.set_header(header.iter().map(bold).collect::<Vec<_>>());
    }
    for row in rows {
        table.add_row(
            row.iter()
                .map(|field| {
                    let cell = Cell::new(&field.text);
                    match field.tone {
                        Tone::Plain => cell,
                        Tone::Good => cell.fg(Color::Green),
                        Tone::Busy => cell.fg(Color::Yellow),
                        Tone::Bad => cell.fg(Color::Red),
                    }
                })
                .collect::<Vec<_>>(),
        );
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    table
}

/// Lets the last column wrap, if there is room for it to be read: ids and names are to be copied, and
/// a terminal that is too narrow for them wraps them better than we could.
fn fit(table: &mut Table) {
    let widths = table.column_max_content_widths();
    let Some((_, fixed)) = widths.split_last() else {
        return;
    };
    let fixed_width: u16 = fixed.iter().map(|width| width + GAP).sum();
    if table
        .width()
        .is_some_and(|width| width >= fixed_width + LAST_COLUMN_MIN)
    {
        let whole = fixed.iter().map(|_| ColumnConstraint::ContentWidth);
        table.set_constraints(whole);
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
}

/// Between two columns.
const GAP: u16 = 2;

/// Narrower than this, wrapped text is a column of syllables.
const LAST_COLUMN_MIN: u16 = 24;

fn trimmed(table: &Table) -> String {
    table.lines().fold(String::new(), |mut text, line| {
        text.push_str(line.trim_end());
        text.push('\n');
        text
    })
}

/// Tab-separated lines.
pub(crate) fn columns(rows: &[Vec<Field>]) -> String {
    let mut text = String::new();
    for row in rows {
        let fields: Vec<&str> = row.iter().map(|field| field.text.as_str()).collect();
        text.push_str(&fields.join("\t"));
        text.push('\n');
    }
    text
}

/// Text that others wrote, made harmless for a terminal and for columns: one line, without characters that
/// steer.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if steers(c) => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// The same JSON, harmless for a terminal: characters that steer are escaped.
fn plain_json(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Only ever between values, where each is as good as the other.
            '\n' | '\t' => plain.push(c),
            '\r' => plain.push(' '),
            c if steers(c) => {
                // Writing to a string does not fail; none of them takes more than four digits.
                let _ = write!(plain, "\\u{:04x}", u32::from(c));
            }
            c => plain.push(c),
        }
    }
    plain
}

/// Whether a terminal does something else with the character than to show it: control characters, those
/// that change the direction of what follows, and those that are not seen or break the line.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}')
}

fn refusal_lines(failure: &Failure) -> String {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let bold = Style::new().bold();
    let mut text = format!("{red}error:{red:#} {}", plain(failure.what()));
    if let Some(why) = failure.why() {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {bold}why:{bold:#} {}", plain(why));
    }
    for problem in failure.problems() {
        let _ = write!(text, "\n  {}", plain(problem));
    }
    if let Some(remedy) = failure.how() {
        let _ = write!(text, "\n  {bold}try:{bold:#} {}", plain(remedy));
    }
    text
}

fn refusal_object(failure: &Failure) -> String {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: u32,
        error: Refusal<'a>,
    }
    #[derive(Serialize)]
    struct Refusal<'a> {
        exit: u8,
        what: &'a str,
        why: Option<&'a str>,
        remedy: Option<&'a str>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        problems: &'a [String],
    }
    let document = Document {
        schema: SCHEMA,
        error: Refusal {
            exit: failure.exit().code(),
            what: failure.what(),
            why: failure.why(),
            remedy: failure.how(),
            problems: failure.problems(),
        },
    };
    serde_json::to_string(&document)
        .map_or_else(|_| refusal_lines(failure), |text| plain_json(&text))
}

#[cfg(test)]
mod tests;
