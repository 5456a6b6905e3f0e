//! Runs a command that cannot outlive its lease.
//!
//! A command is given a deadline that its caller keeps pushing out. Its whole process tree is killed
//! when the deadline passes, when the caller dies or is frozen, when the caller says so, and at its time
//! limit: also what has moved to another session or group. Only when nothing of it executes any more is
//! the ending reported.
//!
//! - [`enter()`] is the first line of `main`.
//! - [`Fence`] starts a [`Command`]; [`Child`] is waited for, [`Control`] bounds it from anywhere.
//! - [`Ending`] says how it ended; [`protocol`] what that means for a unit of work.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use leasehold_fence::{Command, Deadline, Ending, Fence};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     leasehold_fence::enter();
//!     let runtime = tokio::runtime::Runtime::new()?;
//!     runtime.block_on(async {
//!         let fence = Fence::start()?;
//!         let command = Command::new("/bin/sh").with_arguments(["-c", "sleep 1000 & sleep 1000"]);
//!         let until = Deadline::after(Duration::from_secs(5));
//!         let child = fence.run(command, Some(until))?;
//!         child.control().push(Deadline::after(Duration::from_secs(10)));
//!         let finished = child.finish(|_| ()).await;
//!         assert_eq!(finished.ending, Ending::LeaseLost);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What it needs
//! Linux with `/proc` mounted: subreapers, process descriptors and `CLOCK_BOOTTIME`. No privileges.
//!
//! # What it cannot do
//! - Kill what it may not signal: a set-user-ID program that became another user
//!   ([`Command::without_new_privileges`] forbids that).
//! - Kill what the kernel does not let die, such as a process that waits for a dead file server. Such a
//!   run is never reported as ended.
//! - Reach work that was handed to another daemon: that is no part of the tree.
//! - Go on when both the warden of a run and the spawner that started it are killed: the command itself
//!   dies with its warden, what it started may not. It is no sandbox.
//!
//! # The processes
//! ```text
//!  caller ──▶ spawner ──▶ warden ──▶ stage, which becomes the command ──▶ …
//!     └───────────────────────┘ one socket for each run: orders down, the ending up
//! ```

pub mod capture;
mod cgroup;
mod child;
mod clock;
mod command;
mod ending;
mod enter;
mod environment;
mod fence;
pub mod protocol;
mod spawner;
mod stage;
pub mod text;
mod tree;
mod warden;
mod watch;
mod wire;

pub use cgroup::delegated as delegated_cgroup;
pub use child::{Child, Control, Finished};
pub use clock::Deadline;
pub use command::{Command, Input, Output};
pub use ending::{Ending, SpawnFailure};
pub use enter::enter;
pub use environment::{Environment, EnvironmentRefused, INHERITED, INHERITED_PREFIX};
pub use fence::{Fence, StartError};
