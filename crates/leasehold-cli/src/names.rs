//! Names and ids as people type them, refused with one that would do.

use std::fmt::Display;

use leasehold::core::NameError;
use leasehold::core::text::clip;
use leasehold::{FailureCode, ItemId, Kind, Lane, Status};

use crate::failure::Failure;

/// What people call an item that has failed, after how it did.
const ENDINGS: &[(&str, &str)] = &[
    (
        FailureCode::CANCELLED,
        "cancelled items are in the status failed, with the failure code cancelled",
    ),
    (
        FailureCode::ORPHANED,
        "orphaned items are in the status failed, with the failure code orphaned",
    ),
    (
        "dead",
        "dead letters are in the status failed, with any failure code but cancelled and orphaned",
    ),
];

pub(crate) fn parse_status(text: &str) -> Result<Status, Failure> {
    Status::parse(text).ok_or_else(|| {
        if let Some(why) = ENDINGS.iter().find(|(word, _)| *word == text) {
            return Failure::usage(format!("{text:?} is no status"))
                .because(why.1)
                .remedy("give --status failed; the list shows each item's failure code");
        }
        let words: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
        Failure::usage(format!("{text:?} is no status"))
            .because("an item is in one of four")
            .remedy(format!("choose one of {}", words.join(", ")))
    })
}

pub(crate) fn parse_kind(text: &str) -> Result<Kind, Failure> {
    Kind::parse(text).map_err(|error| {
        let capitals = text.to_ascii_uppercase();
        name_refused(&error, Kind::parse(&spelled(&capitals, '_')).ok())
    })
}

pub(crate) fn parse_lane(text: &str) -> Result<Lane, Failure> {
    Lane::parse(text).map_err(|error| name_refused(&error, Lane::parse(&spelled(text, '-')).ok()))
}

/// Who acts, for people who look later: as it was said, else the user of this system.
pub(crate) fn operator(said: Option<String>) -> String {
    let user = || {
        ["USER", "LOGNAME"]
            .iter()
            .find_map(|name| std::env::var(name).ok())
    };
    let said = said.filter(|name| !name.trim().is_empty());
    said.or_else(user)
        .unwrap_or_else(|| "the command line".to_owned())
}

/// The library says what and why in one line; `near` is a name like it that would do.
fn name_refused(error: &NameError, near: Option<impl Display>) -> Failure {
    let told = error.to_string();
    let (what, rule) = told.split_once(": ").unwrap_or((&told, ""));
    let rule = rule.strip_prefix("use ").unwrap_or(rule);
    let remedy = match near {
        Some(near) => format!("write {near}"),
        None => "choose another name".to_owned(),
    };
    Failure::usage(what)
        .because(format!("such a name is {rule}"))
        .remedy(remedy)
}

/// The text with every run of what is neither a letter nor a digit replaced by `joint`.
fn spelled(text: &str, joint: char) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(&joint.to_string())
}

pub(crate) fn parse_id(text: &str) -> Result<ItemId, Failure> {
    text.parse().map_err(|_| {
        Failure::usage(format!("{:?} is no item id", clip(text, 80)))
            .because("an id is a UUID, such as 0197c2f4-7d0a-7000-8000-0123456789ab")
            .remedy("copy it from `leasehold items list`")
    })
}
