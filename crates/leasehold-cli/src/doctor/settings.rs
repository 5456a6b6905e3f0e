//! The file of settings, and whether the commands of its kinds could be run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use leasehold::Kind;
use leasehold_fence::Environment;
use rustix::fs::{Access, access};

use super::Case;
use super::finding::Finding;
use crate::config::{Config, KindConfig};

const SETTINGS: &str = "settings";
const KIND: &str = "kind";

pub(super) fn file(case: &Case) -> Vec<Finding> {
    match &case.config {
        Ok(config) => vec![judge_file(config.file.as_deref(), config.kinds.len())],
        Err(failure) => {
            let fix = failure.how().unwrap_or("correct it");
            let error = |what: &str| Finding::error(SETTINGS, what, fix);
            if failure.problems().is_empty() {
                let why = failure.why().unwrap_or_default();
                return vec![error(&format!("{}: {why}", failure.what()))];
            }
            let problems = failure.problems().iter();
            problems.map(|problem| error(problem)).collect()
        }
    }
}

fn judge_file(file: Option<&Path>, kinds: usize) -> Finding {
    match (file, kinds) {
        (None, _) => Finding::ok(SETTINGS, "there is no leasehold.toml here; defaults hold")
            .with_fix(
                "write one with a section for each kind, or name it with --config, to run commands",
            ),
        (Some(file), 0) => Finding::warning(
            SETTINGS,
            format!(
                "{} names no kind of work, so nothing would be run",
                file.display()
            ),
            "add a section such as [kinds.HELLO] with a command",
        ),
        (Some(file), kinds) => {
            let kinds = if kinds == 1 {
                "1 kind".to_owned()
            } else {
                format!("{kinds} kinds")
            };
            Finding::ok(
                SETTINGS,
                format!("{} is valid, with {kinds}", file.display()),
            )
        }
    }
}

pub(super) fn kinds(case: &Case) -> Vec<Finding> {
    let kinds = case.config.as_ref().map(|config: &Config| &config.kinds);
    let kinds = kinds.into_iter().flatten();
    kinds.flat_map(|(kind, config)| one(kind, config)).collect()
}

fn one(kind: &Kind, config: &KindConfig) -> Vec<Finding> {
    let declared = &config.environment.value;
    let environment = match Environment::from_parent(declared) {
        Ok(environment) => environment,
        Err(error) => {
            return vec![Finding::error(
                KIND,
                format!("{kind}: {error}"),
                "correct it",
            )];
        }
    };
    let directory = &config.directory.value;
    if !directory.is_dir() {
        return vec![Finding::error(
            KIND,
            format!("{kind}: the folder {} is not there", directory.display()),
            "make it, or correct `directory`",
        )];
    }
    let program = config.command.value.first().map_or("", String::as_str);
    let path = environment.iter().find(|(name, _)| *name == "PATH");
    let path = path.map(|(_, path)| path.as_os_str());
    let found = locate(program, path, directory, look);
    let mut findings = vec![judge_program(kind, program, path, found)];
    let given: Vec<&OsString> = environment.iter().map(|(name, _)| name).collect();
    let unset: Vec<&str> = declared
        .iter()
        .map(String::as_str)
        .filter(|name| !is_given(name, &given))
        .collect();
    if !unset.is_empty() {
        findings.push(Finding::warning(
            KIND,
            format!(
                "{kind}: declared in its environment, and not set here: {}",
                unset.join(", ")
            ),
            "set them where the worker is started, or take them out of `environment`",
        ));
    }
    findings
}

/// Whether the environment has a variable that the declared name covers.
fn is_given(declared: &str, given: &[&OsString]) -> bool {
    let covers = |name: &OsString| match declared.strip_suffix('*') {
        Some(beginning) => name.as_encoded_bytes().starts_with(beginning.as_bytes()),
        None => name == declared,
    };
    given.iter().any(|name| covers(name))
}

/// What is found under a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    NotExecutable,
    Program,
}

fn look(path: &Path) -> Found {
    match path.metadata() {
        Err(_) => Found::Nothing,
        Ok(about) if about.is_file() && access(path, Access::EXEC_OK).is_ok() => Found::Program,
        Ok(_) => Found::NotExecutable,
    }
}

/// Where the system looks for programs if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Finds the program as the system will: by its path from the directory if it has a slash, else in the
/// folders of `PATH`. What may not be executed there is passed over, if another is found.
fn locate(
    program: &str,
    path: Option<&OsStr>,
    directory: &Path,
    look: impl Fn(&Path) -> Found,
) -> (Found, PathBuf) {
    if program.contains('/') {
        let place = directory.join(program);
        return (look(&place), place);
    }
    let mut passed_over = None;
    // An empty folder in it is the directory.
    for folder in std::env::split_paths(path.unwrap_or(DEFAULT_PATH.as_ref())) {
        let place = directory.join(folder).join(program);
        match look(&place) {
            Found::Program => return (Found::Program, place),
            Found::NotExecutable => passed_over = passed_over.or(Some(place)),
            Found::Nothing => {}
        }
    }
    match passed_over {
        Some(place) => (Found::NotExecutable, place),
        None => (Found::Nothing, program.into()),
    }
}

fn judge_program(
    kind: &Kind,
    program: &str,
    path: Option<&OsStr>,
    (found, place): (Found, PathBuf),
) -> Finding {
    let place = place.display();
    match found {
        Found::Program => Finding::ok(KIND, format!("{kind}: runs {place}")),
        Found::NotExecutable => Finding::error(
            KIND,
            format!("{kind}: {place} may not be executed"),
            &format!("give it the right (chmod +x {place}), or name its interpreter first"),
        ),
        Found::Nothing if program.contains('/') => Finding::error(
            KIND,
            format!("{kind}: there is no {place}"),
            "correct the command; its path counts from `directory`",
        ),
        Found::Nothing => {
            let path = path.unwrap_or(DEFAULT_PATH.as_ref()).to_string_lossy();
            Finding::error(
                KIND,
                format!("{kind}: {program} is in none of the folders of PATH ({path})"),
                "install it, give its whole path, or correct the PATH that the worker is started with",
            )
        }
    }
}

#[cfg(test)]
mod tests;
