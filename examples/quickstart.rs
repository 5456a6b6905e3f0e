//! The example of the README: one kind of work, one worker, one file.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Arc;

use leasehold::{
    Client, HandlerError, InProcess, QueueSource, Run, Stopper, SystemClock, Work, Worker,
    WorkerSettings,
};

#[derive(serde::Serialize, serde::Deserialize)]
struct Welcome {
    user_id: i64,
}

impl Work for Welcome {
    const KIND: &'static str = "WELCOME_EMAIL";
}

async fn welcome(work: Welcome, run: Run) -> Result<(), HandlerError> {
    println!("welcoming user {}, attempt {}", work.user_id, run.attempt());
    Ok(())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let options = leasehold_sqlite::Options::new(Arc::new(SystemClock));
    let stores = leasehold_sqlite::open("jobs.db", options)?.stores();

    let client = Client::single_tenant(stores.clone())?;
    client
        .enqueue(&Welcome { user_id: 7 })
        .key_text("welcome/7")
        .await?;

    let executor = InProcess::new().handle(welcome)?;
    let worker = Worker::new(
        QueueSource::new(stores),
        executor,
        WorkerSettings::default(),
    )?;
    let stopper = Stopper::new();
    stopper.on_signals()?;
    worker.run(stopper).await?; // until TERM or Ctrl-C; then it drains
    Ok(())
}

fn main() -> std::process::ExitCode {
    leasehold::main(run)
}
