//! `leasehold step-functions`: what goes with a worker for Step Functions on the other side.

use leasehold_aws::{StepFunctionsSettings, template};
use serde::Serialize;
use serde_json::Value;

use crate::arguments::Common;
use crate::config::Config;
use crate::failure::{Answer, Failure};
use crate::screen::{SCHEMA, Screen};

/// What goes with a worker for Step Functions.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Print a state machine, the queue's attributes and the policies, as JSON to start from.
    ///
    /// They go with the settings of the section `[step_functions]`, or with the defaults if there is none.
    Template,
}

/// To be replaced by whoever deploys it.
const ARN: &str = "${QueueArn}";

#[derive(Serialize)]
struct Document {
    schema: u32,
    state_machine: Value,
    queue: Value,
    worker_policy: Value,
    state_machine_policy: Value,
}

pub(crate) fn run(
    arguments: &Arguments,
    common: &Common,
    screen: &Screen,
) -> Result<Answer, Failure> {
    let Command::Template = arguments.command;
    let config = Config::load(common)?;
    let tasks = config.step_functions.as_ref();
    let settings = tasks.map_or_else(StepFunctionsSettings::default, |tasks| {
        tasks.settings.clone()
    });
    let queue = tasks.map_or("${QueueUrl}", |tasks| tasks.queue.as_str());
    let route_by = tasks.and_then(|tasks| tasks.route_by.as_deref());
    screen.object(&Document {
        schema: SCHEMA,
        state_machine: template::state_machine(&settings, queue, route_by),
        queue: template::queue(&settings),
        worker_policy: template::worker_policy(ARN),
        state_machine_policy: template::state_machine_policy(ARN),
    })?;
    Ok(Answer::Yes)
}
