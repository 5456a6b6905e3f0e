//! The cases, and what else a process of this program may be.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::yard::ROLE;

mod blocked;
mod cast;
mod crashing;
mod custody;
mod guards;
mod losing;
mod matrix;
mod protocol;
mod stopping;
mod talking;
mod tree;

pub(super) fn main() -> ExitCode {
    if let Some(member) = tree::Member::of_this_process() {
        member.live();
        return ExitCode::SUCCESS;
    }
    if std::env::args()
        .nth(1)
        .is_some_and(|first| first == crashing::HOG)
    {
        crashing::hog();
        return ExitCode::SUCCESS;
    }
    if let Ok(cast) = std::env::var(ROLE) {
        cast::work(&serde_json::from_str(&cast).unwrap());
        return ExitCode::SUCCESS;
    }
    let mut arguments = Arguments::from_args();
    // A case looks at all that is below this process, so that two at once would see each other's.
    arguments.test_threads = Some(1);
    let cases = [
        matrix::cases(),
        losing::cases(),
        crashing::cases(),
        stopping::cases(),
        talking::cases(),
        protocol::cases(),
        blocked::cases(),
        guards::cases(),
    ];
    let cases = cases.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, cases).exit_code()
}

/// A case. Its name says what it does to processes, so that few of them run at once.
fn case<F: Future<Output = ()>>(name: &str, run: impl FnOnce() -> F + Send + 'static) -> Trial {
    Trial::test(format!("real_process::{name}"), move || {
        custody::take();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            run().await;
            custody::nobody_is_left().await;
        });
        Ok(())
    })
}
