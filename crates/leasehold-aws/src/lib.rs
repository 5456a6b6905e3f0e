//! The Step Functions source: tasks from a queue, reported once, by a worker that may not be stopped
//! while one runs.
//!
//! A state machine sends a message with a task token (`sqs:sendMessage.waitForTaskToken`) and waits for
//! a word about it. [`StepFunctions`] is a [`leasehold::Source`]: the same worker, keeper, executors and
//! drain that run a queue's items run these. Nothing here knows the queue's stores.
//!
//! # The order of work for one message
//! ```text
//! receive ─▶ read ─▶ heartbeat ─▶ protection confirmed ─▶ deletion confirmed ─▶ handed out, runs
//!              │          │stale          │refused               │not confirmed         │ heartbeats
//!     malformed│          ▼               ▼                      ▼                      ▼
//!   fail, delete     delete, drop    visible again         visible again       heartbeats stopped
//!                                                                              ─▶ one final report
//!                                                                              ─▶ protection off, once
//! ```
//! The state's own retry is the only one: a message is never run twice, and a token is never reported
//! after it was found stale. If the worker dies, the state's heartbeat ends the try.
//!
//! # Leases
//! A task has no lease but the state's `HeartbeatSeconds`. The worker's lease is four heartbeat
//! intervals: a heartbeat is a renewal, due after a quarter, and a run whose heartbeats are not
//! accepted for half a lease is stopped. A state should give at least as much as the lease.
//!
//! Read in this order: [`envelope`](Envelope) (what a message is), [`calls`](Queue) (what is asked of
//! the services, and what their answers mean), [`report`](Report) (what is told), `protection`,
//! `pickup` (a message's way to a run), `source` (a run's way to its report).

mod agent;
mod calls;
mod desk;
mod envelope;
mod pickup;
mod poll;
mod protection;
mod report;
mod routes;
#[cfg(feature = "sdk")]
mod sdk;
mod settings;
mod source;
pub mod template;
mod token;

pub use agent::{AgentEndpoint, EndpointRefused};
pub use calls::{
    Agent, AgentError, Message, Protected, Queue, QueueAttributes, QueueError, Receipt, TaskError,
    Tasks,
};
pub use envelope::{Envelope, Malformed};
pub use protection::ProtectionMode;
pub use report::{CAUSE_BYTES_MAX, ERROR_BYTES_MAX, OUTPUT_BYTES_MAX, Report};
pub use routes::{Route, Routes, Unrouted};
#[cfg(feature = "sdk")]
pub use sdk::{Connection, NotConnected};
pub use settings::{StepFunctionsSettings, TASK_VARIABLES};
pub use source::StepFunctions;
pub use token::TaskToken;
