//! The file as it is read: tables whose keys are known, values of the type that is asked for, and what
//! is wrong with either, with its line.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Complaint, Problem};
use super::{Origin, Setting};

/// What a table of the file holds, by key.
pub(super) type Entries<'a> = DeTable<'a>;

/// One text of settings, and what was found wrong with it so far.
pub(super) struct Page<'a> {
    file: &'a str,
    text: &'a str,
    /// Where each line ends: a long file has many keys, and each is asked for its line.
    line_ends: Vec<usize>,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Page<'a> {
    /// The text of the file that is shown under this name.
    pub(super) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            line_ends: text.match_indices('\n').map(|(at, _)| at).collect(),
            problems: RefCell::default(),
        }
    }

    /// Reads the text as TOML. If it is none it holds nothing: what half of it would mean is not worth
    /// telling. A key that stands twice hides nothing of the others.
    pub(super) fn parse(&self) -> Spanned<Entries<'a>> {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        let mut is_readable = true;
        let mut lines = BTreeSet::new();
        for error in errors {
            let span = error.span().unwrap_or_default();
            let line = self.line(&span);
            let complaint = if error.message() == DUPLICATE {
                let key = self.text.get(span).unwrap_or_default();
                Complaint::new(format!("{key} stands twice"), "leave one of them out")
            } else {
                is_readable = false;
                // The rest of a broken line makes no sense either.
                if !lines.insert(line) {
                    continue;
                }
                let what = format!("this is not TOML: {}", error.message());
                Complaint::new(what, "correct it at that place")
            };
            self.complain(line, complaint);
        }
        if is_readable {
            table
        } else {
            Spanned::new(0..0, Entries::default())
        }
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }

    pub(super) fn complain(&self, line: usize, complaint: Complaint) {
        let problem = Problem::in_file(self.file, line, complaint);
        self.problems.borrow_mut().push(problem);
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.line_ends.partition_point(|end| *end < span.start) + 1
    }
}

/// What the parser says of a key that stands twice.
const DUPLICATE: &str = "duplicate key";

/// One table, and the path of its keys.
pub(super) struct Table<'a> {
    page: &'a Page<'a>,
    /// As refusals name it.
    pub(super) path: String,
    line: usize,
    entries: &'a Entries<'a>,
}

impl<'a> Table<'a> {
    /// The file as a whole.
    pub(super) fn root(page: &'a Page<'a>, entries: &'a Entries<'a>) -> Self {
        Self {
            page,
            path: String::new(),
            line: 1,
            entries,
        }
    }

    /// Complains of the table as a whole.
    pub(super) fn complain(&self, complaint: Complaint) {
        self.page.complain(self.line, complaint);
    }

    /// Every key with its value. For tables whose keys are names that people choose.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let (page, path) = (self.page, self.path.as_str());
        self.entries.iter().map(move |(key, value)| {
            let name = key.get_ref().as_ref();
            Entry {
                page,
                path: join(path, name),
                name,
                line: page.line(&key.span()),
                value: value.get_ref(),
            }
        })
    }

    /// Complains of every key but these; `elsewhere` says where a key belongs that stands wrong here.
    pub(super) fn allow(&self, known: &[&str], elsewhere: impl Fn(&str) -> Option<String>) {
        for entry in self.entries() {
            if known.contains(&entry.name) {
                continue;
            }
            let remedy = match (elsewhere(entry.name), nearest(entry.name, known)) {
                (Some(place), _) => place,
                (None, Some(near)) => format!("did you mean {near}?"),
                (None, None) => format!("the keys here are {}", known.join(", ")),
            };
            let what = format!("{} is no key that is known", entry.path);
            entry.complain(Complaint::new(what, remedy));
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<Entry<'a>> {
        self.entries().find(|entry| entry.name == key)
    }

    /// Sets the setting to what the file has for the key, if it does and `read` takes it.
    pub(super) fn read<T>(
        &self,
        key: &str,
        setting: &mut Setting<T>,
        read: impl FnOnce(&Entry<'a>) -> Option<T>,
    ) {
        let Some(entry) = self.get(key) else { return };
        if let Some(value) = read(&entry) {
            *setting = Setting {
                value,
                origin: Origin::File { line: entry.line },
            };
        }
    }
}

/// A key and its value, or one element of a list.
pub(super) struct Entry<'a> {
    page: &'a Page<'a>,
    /// The whole path, as refusals name it.
    pub(super) path: String,
    /// The key alone.
    pub(super) name: &'a str,
    pub(super) line: usize,
    value: &'a DeValue<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn complain(&self, complaint: Complaint) {
        self.page.complain(self.line, complaint);
    }

    /// Complains, and gives nothing.
    pub(super) fn refuse<T>(&self, complaint: Complaint) -> Option<T> {
        self.complain(complaint);
        None
    }

    /// The value, if there is one; else complains.
    pub(super) fn accept<T>(&self, read: Result<T, Complaint>) -> Option<T> {
        read.map_err(|complaint| self.complain(complaint)).ok()
    }

    pub(super) fn table(&self) -> Option<Table<'a>> {
        if let DeValue::Table(entries) = self.value {
            Some(Table {
                page: self.page,
                path: self.path.clone(),
                line: self.line,
                entries,
            })
        } else {
            let remedy = format!("write it as a section, [{}]", self.path);
            self.refuse(self.mistyped("a table", remedy))
        }
    }

    pub(super) fn text(&self, example: &str) -> Option<&'a str> {
        if let DeValue::String(text) = self.value {
            Some(text.as_ref())
        } else {
            let remedy = format!("write it in quotes, as in {} = {example:?}", self.name);
            self.refuse(self.mistyped("a text", remedy))
        }
    }

    /// Whether the value is one text.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.value, DeValue::String(_))
    }

    /// A number and its unit, in quotes.
    pub(super) fn measure(&self, units: &str) -> Option<&'a str> {
        match self.value {
            DeValue::Integer(_) | DeValue::Float(_) => {
                let what = format!("{} is a number without a unit", self.path);
                self.refuse(Complaint::new(what, format!("write it with one, {units}")))
            }
            _ => self.text(units),
        }
    }

    /// The elements of a list of texts; whether each is a text is for its reader.
    fn list(&self, example: &str) -> Option<Vec<Self>> {
        let DeValue::Array(elements) = self.value else {
            let remedy = format!("write it as a list, {} = {example}", self.name);
            return self.refuse(self.mistyped("a list of texts", remedy));
        };
        let elements = elements.iter().zip(1_usize..);
        let elements = elements.map(|(element, number)| Self {
            page: self.page,
            path: format!("number {number} of {}", self.path),
            name: self.name,
            line: self.page.line(&element.span()),
            value: element.get_ref(),
        });
        Some(elements.collect())
    }

    /// A list, each element of which `read` takes. All that are wrong are told.
    pub(super) fn each<T>(
        &self,
        example: &str,
        read: impl Fn(&Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let read: Vec<Option<T>> = self.list(example)?.iter().map(read).collect();
        read.into_iter().collect()
    }

    pub(super) fn whole<T: TryFrom<i64> + Into<i64>>(
        &self,
        allowed: RangeInclusive<T>,
    ) -> Option<T> {
        let DeValue::Integer(number) = self.value else {
            let remedy = format!("write it without quotes, as in {} = 5", self.name);
            return self.refuse(self.mistyped("a whole number", remedy));
        };
        let (low, high) = allowed.into_inner();
        let (low, high) = (low.into(), high.into());
        let read = i64::from_str_radix(number.as_str(), number.radix()).ok();
        let fits = read.filter(|number| (low..=high).contains(number));
        let value = fits.and_then(|number| T::try_from(number).ok());
        self.accept(value.ok_or_else(|| {
            Complaint::new(
                format!("{} = {number} is out of range", self.path),
                format!("give a number from {low} to {high}"),
            )
        }))
    }

    pub(super) fn fraction(&self, allowed: RangeInclusive<f64>) -> Option<f64> {
        let read = match self.value {
            DeValue::Float(number) => number.as_str().parse::<f64>(),
            DeValue::Integer(number) => number.as_str().parse::<f64>(),
            _ => {
                let remedy = format!("write it without quotes, as in {} = 0.1", self.name);
                return self.refuse(self.mistyped("a number", remedy));
            }
        };
        let value = read.ok().filter(|number| allowed.contains(number));
        self.accept(value.ok_or_else(|| {
            Complaint::new(
                format!("{} is out of range", self.path),
                format!(
                    "give a number from {} to {}",
                    allowed.start(),
                    allowed.end()
                ),
            )
        }))
    }

    pub(super) fn switch(&self) -> Option<bool> {
        if let DeValue::Boolean(is_on) = self.value {
            Some(*is_on)
        } else {
            let remedy = "write true or false, without quotes";
            self.refuse(self.mistyped("true or false", remedy))
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, words: &[(&str, T)]) -> Option<T> {
        let example = words.first().map_or("", |(word, _)| word);
        let text = self.text(example)?;
        self.accept(choose(&self.path, text, words))
    }

    fn mistyped(&self, needed: &str, remedy: impl Into<String>) -> Complaint {
        let found = match self.value {
            DeValue::String(_) => "text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let what = format!("{} is {found}, and {needed} is needed", self.path);
        Complaint::new(what, remedy)
    }
}

/// The choice that the text is, which was given for the key.
pub(super) fn choose<T: Copy>(key: &str, text: &str, words: &[(&str, T)]) -> Result<T, Complaint> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Complaint::new(
            format!("{key} = {text:?} is not a choice"),
            format!("choose one of {}", names.join(", ")),
        )
    })
}

/// The path of a key, quoted where TOML would not take it bare.
pub(super) fn join(path: &str, name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = if !name.is_empty() && name.chars().all(is_bare) {
        name.to_owned()
    } else {
        format!("{name:?}")
    };
    if path.is_empty() {
        name
    } else {
        format!("{path}.{name}")
    }
}

/// The known word that was probably meant.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |one: &&str| strsim::jaro(word, one);
    let best = known
        .iter()
        .map(|one| (likeness(one), *one))
        .max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(likeness, _)| *likeness > LIKENESS_MIN)
        .map(|(_, one)| one)
}

/// Less alike than this, the one word says nothing about the other.
const LIKENESS_MIN: f64 = 0.75;
