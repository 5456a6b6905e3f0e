//! Payloads as they come in: an argument, a file, standard input, or a file of one a line.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use leasehold::JsonObject;
use leasehold::core::JsonError;

use crate::failure::Failure;

/// More lines than this are one transaction too long for the workers that wait for it.
const BATCH_LINES_MAX: usize = 10_000;

/// A bound for memory: a batch is read whole before anything of it is stored.
const BATCH_BYTES_MAX: u64 = 256 << 20;

/// Of one payload: its limit, and room for white space around it.
const ONE_BYTES_MAX: u64 = JsonObject::BYTES_MAX as u64 + 4_096;

/// Where a text comes from, as refusals name it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin<'a> {
    Argument,
    Input,
    File(&'a str),
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument => f.write_str("the argument"),
            Self::Input => f.write_str("standard input"),
            Self::File(path) => f.write_str(path),
        }
    }
}

/// Reads the payload that the argument stands for: JSON itself, `@file`, `-` for standard input, and
/// `{}` if there is none.
pub(crate) fn one(argument: Option<&str>) -> Result<JsonObject, Failure> {
    let Some(argument) = argument else {
        return Ok(JsonObject::empty());
    };
    let origin = match (argument, argument.strip_prefix('@')) {
        (_, Some("")) => {
            return Err(Failure::usage("no file name follows the @")
                .because("@FILE reads the payload from that file")
                .remedy("write it as @payload.json, or - to read standard input"));
        }
        ("-", _) => Origin::Input,
        (_, Some(path)) => Origin::File(path),
        _ => Origin::Argument,
    };
    let parsed = if origin == Origin::Argument {
        JsonObject::parse(argument)
    } else {
        JsonObject::parse(&origin.read(ONE_BYTES_MAX)?)
    };
    parsed.map_err(|error| {
        let remedy = match remedy(&error) {
            Some(remedy) => remedy.to_owned(),
            None if origin == Origin::Argument && Path::new(argument).is_file() => {
                format!("write @{argument} to send what that file holds")
            }
            // The quotes are what a shell takes away.
            None if origin == Origin::Argument && !argument.contains('"') => {
                "quote it for the shell, as in '{\"id\": 7}', or send it with @file or -".to_owned()
            }
            None => "correct it at that place".to_owned(),
        };
        Failure::usage(format!("the payload from {origin} is not acceptable"))
            .because(why(&error))
            .remedy(remedy)
    })
}

/// Reads one payload a line from the file, or from standard input for `-`, each with the name of its
/// place. Blank lines are passed over. One bad line refuses them all.
pub(crate) fn lines(file: &str) -> Result<Vec<(String, JsonObject)>, Failure> {
    let origin = match file {
        "-" => Origin::Input,
        path => Origin::File(path),
    };
    let text = origin.read(BATCH_BYTES_MAX)?;
    let mut payloads = Vec::new();
    for (line, number) in text.lines().zip(1_u64..) {
        if line.trim().is_empty() {
            continue;
        }
        let at = format!("line {number} of {origin}");
        let payload = JsonObject::parse(line).map_err(|error| {
            // The decoder was given one line and counts from there.
            let place = format!(" at line {number} column");
            Failure::usage(format!("{at} is not acceptable; nothing was stored"))
                .because(why(&error).replace(" at line 1 column", &place))
                .remedy(remedy(&error).unwrap_or("write one whole object on each line"))
        })?;
        payloads.push((at, payload));
        if payloads.len() > BATCH_LINES_MAX {
            return Err(Failure::usage(format!(
                "{origin} holds more than {BATCH_LINES_MAX} payloads; nothing was stored"
            ))
            .because("a batch is one transaction, and workers wait while it is written")
            .remedy(format!(
                "split it, for instance with `split -l {BATCH_LINES_MAX}`"
            )));
        }
    }
    if payloads.is_empty() {
        return Err(Failure::usage(format!("{origin} holds no payload"))
            .because("a batch is a file with one JSON object a line")
            .remedy("write lines such as {\"id\": 7}"));
    }
    Ok(payloads)
}

/// The characters of the object but the white space between its parts, to compare two by. The order of
/// keys and the way numbers are written count.
pub(crate) fn without_space(object: &JsonObject) -> impl Iterator<Item = char> + '_ {
    let (mut in_text, mut is_escaped) = (false, false);
    object.as_str().chars().filter(move |&c| {
        if in_text {
            in_text = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            return true;
        }
        in_text = c == '"';
        !matches!(c, ' ' | '\t' | '\n' | '\r')
    })
}

fn why(error: &JsonError) -> String {
    let told = error.to_string();
    match error {
        // Its text says what to do as well; said once is enough.
        JsonError::TooLarge { .. } => told.split("; ").next().unwrap_or_default().to_owned(),
        _ => told,
    }
}

/// What to do about it, where that does not depend on where the text came from.
const fn remedy(error: &JsonError) -> Option<&'static str> {
    match error {
        JsonError::NotAnObject(_) => Some("wrap it in an object and give it a name"),
        JsonError::ZeroCharacter { .. } => {
            Some("take the character out, or encode the value as base64")
        }
        JsonError::DuplicateKey { .. } => Some("leave one of them out"),
        JsonError::TooLarge { .. } => Some("store the data elsewhere and send its id"),
        _ => None,
    }
}

impl Origin<'_> {
    fn read(&self, bytes_max: u64) -> Result<String, Failure> {
        let bytes = match self {
            Self::File(path) if Path::new(path).is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Self::File(path) => File::open(path).and_then(|file| read(file, bytes_max)),
            Self::Input | Self::Argument => read(io::stdin().lock(), bytes_max),
        };
        let bytes = bytes.map_err(|error| {
            Failure::usage(format!("{self} cannot be read"))
                .because(error)
                .remedy("check the path and its permissions; - reads standard input")
        })?;
        if bytes.len() as u64 > bytes_max {
            return Err(
                Failure::usage(format!("{self} holds more than {bytes_max} bytes"))
                    .because("that is the limit; it was not read to its end")
                    .remedy("store the data elsewhere and send its id"),
            );
        }
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::usage(format!("{self} is not UTF-8 text"))
                .because(format!("the byte at offset {at} begins no character"))
                .remedy("convert it, for instance with `iconv -t UTF-8`")
        })
    }
}

/// One byte more than allowed is enough to know that there are too many.
fn read(source: impl Read, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(bytes_max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}
