//! `cargo xtask ci`: the steps in order, stopping at the first that fails.
//!
//! Cheap steps come first, so that a slip costs seconds. A step that cannot run here is skipped
//! with its reason in the closing report, never silently.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::workspace::{Workspace, cargo, has_subcommand, shown, succeed};
use crate::{simulation, tidy};

/// How a step that did not fail ended.
enum Verdict {
    Passed,
    /// Passed, with a line of its own for the report.
    PassedWith(String),
    Skipped(&'static str),
}

struct Step {
    name: &'static str,
    run: fn(&Workspace) -> Result<Verdict>,
}

const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        run: fmt,
    },
    Step {
        name: "tidy",
        run: tidy,
    },
    Step {
        name: "deny",
        run: deny,
    },
    Step {
        name: "sdk",
        run: sdk,
    },
    Step {
        name: "clippy",
        run: clippy,
    },
    Step {
        name: "doc",
        run: doc,
    },
    Step {
        name: "nextest",
        run: nextest,
    },
    Step {
        name: "doctest",
        run: doctest,
    },
    Step {
        name: "bridges",
        run: bridges,
    },
    Step {
        name: "sim",
        run: sim,
    },
];

/// Runs every step and prints what each took.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let mut report = Vec::new();
    let mut remarks = Vec::new();
    for step in STEPS {
        println!("== {}", step.name);
        let started = now();
        let result = (step.run)(workspace);
        let took = seconds(started.elapsed());
        match result {
            Ok(Verdict::Passed) => report.push(format!("{:<8} {took}", step.name)),
            Ok(Verdict::PassedWith(remark)) => {
                report.push(format!("{:<8} {took}", step.name));
                remarks.push(remark);
            }
            Ok(Verdict::Skipped(reason)) => {
                println!("skipped: {reason}");
                report.push(format!("{:<8} skipped: {reason}", step.name));
            }
            Err(error) => {
                report.push(format!("{:<8} {took} FAILED", step.name));
                print_report(&report, &remarks);
                return Err(error.context(format!("step `{}` failed after {took}", step.name)));
            }
        }
    }
    print_report(&report, &remarks);
    println!("ci: passed");
    Ok(())
}

fn print_report(report: &[String], remarks: &[String]) {
    println!("== report");
    for line in report.iter().chain(remarks) {
        println!("{line}");
    }
}

fn fmt(workspace: &Workspace) -> Result<Verdict> {
    succeed(cargo(&workspace.root).args(["fmt", "--all", "--check"]))?;
    Ok(Verdict::Passed)
}

fn tidy(workspace: &Workspace) -> Result<Verdict> {
    tidy::run(workspace)?;
    Ok(Verdict::Passed)
}

fn deny(workspace: &Workspace) -> Result<Verdict> {
    if !has_subcommand(&workspace.root, "deny") {
        return Ok(Verdict::Skipped("cargo-deny is not installed"));
    }
    // Advisories are left out: they change without a change of ours, and fetching them needs the
    // network.
    succeed(cargo(&workspace.root).args(["deny", "check", "licenses", "bans", "sources"]))?;
    Ok(Verdict::Passed)
}

fn sdk(workspace: &Workspace) -> Result<Verdict> {
    let mut command = Command::new(workspace.root.join("scripts/test-sdk"));
    command.current_dir(&workspace.root).stdout(Stdio::piped());
    let line = shown(&command);
    println!("$ {line}");
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    // Its last line says what was tested and what was skipped.
    let mut summary = String::new();
    if let Some(stdout) = child.stdout.take() {
        for text in BufReader::new(stdout).split(b'\n') {
            let text = text.context("cannot read what the tests of the SDKs report")?;
            summary = String::from_utf8_lossy(&text).into_owned();
            println!("{summary}");
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed ({status})");
    }
    Ok(Verdict::PassedWith(summary))
}

fn clippy(workspace: &Workspace) -> Result<Verdict> {
    succeed(cargo(&workspace.root).args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ]))?;
    Ok(Verdict::Passed)
}

fn doc(workspace: &Workspace) -> Result<Verdict> {
    succeed(
        cargo(&workspace.root)
            .args([
                "doc",
                "--workspace",
                "--no-deps",
                "--document-private-items",
                "--all-features",
            ])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(Verdict::Passed)
}

fn nextest(workspace: &Workspace) -> Result<Verdict> {
    if !has_subcommand(&workspace.root, "nextest") {
        succeed(cargo(&workspace.root).args(["install", "cargo-nextest", "--locked"]))?;
    }
    let mut command = cargo(&workspace.root);
    command
        .args([
            "nextest",
            "run",
            "--profile",
            "ci",
            "--workspace",
            // Whole executions of Step Functions, which the everyday build leaves out.
            "--features",
            "leasehold-cli/aws",
            "--color",
            "never",
        ])
        .stderr(Stdio::piped());
    let line = shown(&command);
    println!("$ {line}");
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    // nextest reports on its standard error; it is passed on as it comes, and the line with the
    // totals is kept, because the list of failures may follow it.
    let mut summary = None;
    if let Some(stderr) = child.stderr.take() {
        for text in BufReader::new(stderr).split(b'\n') {
            let text = text.context("cannot read what nextest reports")?;
            let text = String::from_utf8_lossy(&text);
            eprintln!("{text}");
            if text.trim_start().starts_with("Summary [") {
                summary = Some(text.trim().to_owned());
            }
        }
    }
    let status = child
        .wait()
        .with_context(|| format!("cannot wait for `{line}`"))?;
    let summary = summary.unwrap_or_else(|| "no summary: nextest ran no test".to_owned());
    if !status.success() {
        bail!("`{line}` failed ({status})\n{summary}");
    }
    Ok(Verdict::PassedWith(summary))
}

fn doctest(workspace: &Workspace) -> Result<Verdict> {
    succeed(cargo(&workspace.root).args(["test", "--doc", "--workspace"]))?;
    Ok(Verdict::Passed)
}

/// Each bridge is a workspace of its own. In this one's target folder, so that what both need of the crates is
/// compiled once, and one database server serves the tests of both.
fn bridges(workspace: &Workspace) -> Result<Verdict> {
    for manifest in workspace.bridges()? {
        let of_it = |arguments: &[&str]| {
            let mut command = cargo(&workspace.root);
            command
                .args(arguments)
                .args(["--manifest-path", &manifest])
                .env("CARGO_TARGET_DIR", &workspace.target);
            command
        };
        succeed(of_it(&["fmt"]).arg("--check"))?;
        succeed(of_it(&["clippy", "--all-targets"]).args(["--", "-D", "warnings"]))?;
        succeed(&mut of_it(&["test"]))?;
    }
    Ok(Verdict::Passed)
}

fn sim(workspace: &Workspace) -> Result<Verdict> {
    if !simulation::exists(workspace) {
        return Ok(Verdict::Skipped(
            "leasehold-testkit has no `sim` binary yet",
        ));
    }
    simulation::run(workspace, simulation::SMOKE, &[])?;
    Ok(Verdict::Passed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the wall clock of a build is what is measured"
)]
fn now() -> Instant {
    Instant::now()
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}
