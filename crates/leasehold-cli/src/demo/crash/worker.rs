//! One worker of the demo, in a process of its own, and the command that it runs.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::{
    Kind, KindSettings, Program, QueueSource, Subprocess, Work, Worker, WorkerSettings,
};
use leasehold_fence::{Environment, Fence};
use serde::{Deserialize, Serialize};

use super::super::worker::{broken, quick, runtime, stopped_by_input};
use super::unusable;
use crate::database;
use crate::failure::{Answer, Failure};

/// What the demo gives a worker that it starts.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(long)]
    name: String,
    #[arg(long)]
    queue: PathBuf,
    /// Where the command runs, and leaves its marks.
    #[arg(long)]
    folder: PathBuf,
}

/// The work: grow a tree of processes, and on a second run none.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct GrowTree {}

impl Work for GrowTree {
    const KIND: &'static str = "GROW_TREE";
}

/// The names of the processes of a first run, as the script calls them.
pub(super) const ROLES: [&str; 4] = ["command", "child", "grandchild", "forked-twice"];

/// The command. Each process writes its number, and then a mark every 50 ms: an empty line in a file of
/// its own, named by the run's fencing number.
const SCRIPT: &str = r#"role=${1:-command}
run=$LEASEHOLD_FENCE
if [ "$run" -gt 1 ]; then
    : > "$run.begun"
    sleep 0.5
    echo "{\"run\": $run, \"attempt\": $LEASEHOLD_ATTEMPT}"
    exit
fi
trap '' TERM HUP INT
case $role in
    command)
        sh tree.sh child &
        (setsid sh tree.sh forked-twice &)
        ;;
    child)
        setsid sh tree.sh grandchild &
        ;;
esac
echo $$ > "$run.$role.pid"
while :; do
    echo >> "$run.$role.marks"
    sleep 0.05
done
"#;

/// Makes the folder with the script.
pub(super) fn prepare(folder: &Path) -> Result<(), Failure> {
    let script = folder.join("tree.sh");
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&script, SCRIPT))
        .map_err(unusable(&script))
}

/// Runs one worker until its standard input ends.
pub(crate) fn work(arguments: &Arguments) -> Result<Answer, Failure> {
    runtime()?.block_on(run(arguments))
}

async fn run(arguments: &Arguments) -> Result<Answer, Failure> {
    let options = database::options().without_creating().without_migrating();
    let store = leasehold_sqlite::open(&arguments.queue, options).map_err(database::refusal)?;
    let fence = Fence::start().map_err(|error| broken(&error))?;
    let environment = Environment::from_parent(&[]).map_err(|error| broken(&error))?;
    let program = Program::new("sh", &arguments.folder, environment).with_arguments(["tree.sh"]);
    let kind = Kind::parse(GrowTree::KIND).map_err(|error| broken(&error))?;
    let executor = Subprocess::new(fence.clone()).handle(kind, program, KindSettings::default());
    let settings = WorkerSettings {
        name: arguments.name.clone(),
        capacity: 1,
        ..quick()
    };
    let source = QueueSource::new(store.stores());
    let worker = Worker::new(source, executor, settings).map_err(|error| broken(&error))?;
    let ended = worker.run(stopped_by_input()).await;
    fence.close();
    ended.map_err(|error| broken(&error))?;
    Ok(Answer::Yes)
}
