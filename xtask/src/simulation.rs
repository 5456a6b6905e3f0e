//! `cargo xtask sim` and `soak`: the simulation binary of the test kit, with the seeds named.
//!
//! The arguments are checked here, because the release build before a complaint takes minutes.

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, cargo, succeed};

const PACKAGE: &str = "leasehold-testkit";
const BINARY: &str = "sim";

/// What runs unless seeds are named: enough to catch a broken rule, short enough for every change.
/// The fresh seeds look somewhere new each time; a failure prints its seed.
pub(crate) const SMOKE: &[&str] = &["--seeds", "0..300", "--fresh", "50"];

/// The long run, whose figures may be quoted with its command.
pub(crate) const SOAK: &[&str] = &["--seeds", "0..10000"];

pub(crate) fn exists(workspace: &Workspace) -> bool {
    workspace.has_binary(PACKAGE, BINARY)
}

pub(crate) fn run(workspace: &Workspace, unless_told: &[&str], given: &[String]) -> Result<()> {
    let arguments = arguments(unless_told, given)?;
    if !exists(workspace) {
        bail!("{PACKAGE} has no `{BINARY}` binary");
    }
    succeed(
        cargo(&workspace.root)
            .args([
                "run",
                "--quiet",
                "--release",
                "-p",
                PACKAGE,
                "--bin",
                BINARY,
                "--",
            ])
            .args(arguments),
    )
}

/// What the binary is called with: the caller's arguments, or `unless_told` if they name no seeds.
/// What follows `--` is for the binary alone and is not looked at.
fn arguments(unless_told: &[&str], given: &[String]) -> Result<Vec<String>> {
    let (ours, theirs) = match given.iter().position(|argument| argument == "--") {
        Some(at) => (&given[..at], &given[at + 1..]),
        None => (given, &[][..]),
    };
    let mut ours = ours.iter();
    let mut known = Vec::new();
    let mut names_seeds = false;
    while let Some(flag) = ours.next() {
        let value = ours
            .next()
            .with_context(|| format!("`{flag}` needs a value after it"));
        match flag.as_str() {
            "--seed" | "--fresh" => {
                let value = value?;
                number(value).with_context(|| format!("`{flag}` takes a number"))?;
                known.extend([flag.clone(), value.clone()]);
            }
            "--seeds" => {
                let value = value?;
                range(value).context("`--seeds` takes a range such as 0..300")?;
                known.extend([flag.clone(), value.clone()]);
            }
            _ => bail!(
                "`{flag}` is not known here: use `--seed N`, `--seeds A..B` or `--fresh N`, and \
                 put what is for the simulation alone after `--`"
            ),
        }
        names_seeds = true;
    }
    if !names_seeds {
        known.extend(unless_told.iter().map(|&argument| argument.to_owned()));
    }
    known.extend(theirs.iter().cloned());
    Ok(known)
}

fn number(text: &str) -> Result<u64> {
    text.parse()
        .with_context(|| format!("`{text}` is not a whole number"))
}

fn range(text: &str) -> Result<()> {
    let (from, to) = text
        .split_once("..")
        .with_context(|| format!("`{text}` has no `..`"))?;
    if number(from)? >= number(to)? {
        bail!("`{text}` is empty");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
