//! `leasehold demo crash`: a command whose processes resist, and a worker that is killed, then one that
//! is frozen, while it runs.
//!
//! - [`act`] is the order of events, played once for each blow. [`tree`] is what the system shows of the
//!   command's processes and of what they did.
//! - [`worker`] is one worker's process. [`account`] shows what both acts came to.

use std::path::Path;

use leasehold::Client;

use super::narrator::Narrator;
use super::{Home, asked_to_stop};
use crate::block_on;
use crate::failure::{Answer, Failure};
use crate::screen::Screen;

mod account;
mod act;
mod tree;
mod worker;

use account::Account;
use act::{Act, Blow, Stage};

pub(crate) use worker::{Arguments as WorkerArguments, work};

/// See no process survive: kill the worker of a command whose processes resist, then freeze another.
///
/// One item, run as a command: a shell with a child, a grandchild in a session of its own, and one that
/// was forked twice. All of them ignore TERM, and each leaves a mark twenty times a second. The worker is
/// killed (SIGKILL): every process must be gone before the lease is over. Only then a second worker runs
/// the item again, and the marks must show that nothing of the first run executed any more. Then the same
/// with a worker that is frozen (SIGSTOP), and let go (SIGCONT) when all is over. Takes about ten seconds.
///
/// Exits with 1 if a promise was broken, and then keeps the database.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
JSON: {\"schema\", \"kept\", \"acts\": [{\"blow\": \"killed\" | \"frozen\", \"kept\", \"processes\": [{\"name\", \
\"pid\", \"parent\", \"group\", \"session\", \"gone_after_ms\"}], \"gone_after_ms\", \"lease_left_ms\", \
\"second_run_after_ms\", \"silent_before_ms\", \"marks\", \"late_marks\", \"status\", \"attempts\", \"fence\"}], \
\"database\"}; lease_left_ms is what was left of the lease when the last process was gone, silent_before_ms how \
long no mark had been left when the second run began, and late_marks how many of the first run came after that.")]
pub(crate) struct Arguments {
    /// Keep the database, to look at it with `leasehold items`.
    #[arg(
        long,
        env = "LEASEHOLD_DEMO_KEEP",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::FalseyValueParser::new()
    )]
    keep: bool,
}

pub(crate) fn run(arguments: &Arguments, verbose: u8, screen: &Screen) -> Result<Answer, Failure> {
    let home = Home::new()?;
    let client = home.create_queue()?;
    let acts = block_on(async {
        tokio::select! {
            acts = perform(&client, &home, verbose) => acts,
            stopped = asked_to_stop() => Err(super::interrupted(stopped)),
        }
    });
    // The folder is removed, or left to a person, when nobody writes to it any more.
    tree::wait_until_left(home.path());
    let mut account = Account::new(acts?);
    let is_kept = account.is_kept();
    let queue = home.leave(arguments.keep || !is_kept, false);
    account.show(queue.as_deref(), screen)?;
    Ok(if is_kept { Answer::Yes } else { Answer::Broken })
}

async fn perform(client: &Client, home: &Home, verbose: u8) -> Result<Vec<Act>, Failure> {
    let narrator = Narrator::without_bar();
    let queue = home.queue();
    let mut acts = Vec::new();
    for blow in [Blow::Kill, Blow::Freeze] {
        let folder = home.path().join(blow.done());
        worker::prepare(&folder)?;
        let stage = Stage {
            client,
            queue: &queue,
            folder: &folder,
            narrator: &narrator,
            verbose,
        };
        acts.push(stage.play(blow).await?);
    }
    Ok(acts)
}

/// What a file of the demo could not be used for.
fn unusable(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let shown = path.display().to_string();
    move |error| Failure::failed(format!("{shown} cannot be used")).because(error)
}
