//! The domain of Leasehold: what a work item is, which rules move it, and what a store owes.
//!
//! Nothing here performs I/O, reads a clock or needs an async runtime. Time and jitter are
//! arguments; the store promises are traits; [`MemoryStore`] keeps every one of them and is what
//! tests use in place of a database.
//!
//! Read in this order: [`item`] (the fields), [`outcome`] (what a run may end in), [`rules`] (what
//! follows from it), [`store`] (what makes it durable).

pub mod context;
pub mod ids;
pub mod item;
pub mod json;
pub mod memory;
pub mod names;
pub mod outcome;
pub mod rules;
pub mod store;
pub mod text;
pub mod time;

pub use context::{App, AppKind, OpContext, Permission, RequestContext, Role};
pub use ids::{
    ApiKeyId, ClaimToken, IdempotencyKey, IdentityId, ItemId, OrgId, RequestId, ScheduleId,
    SessionId, TargetId, UserId,
};
pub use item::{AttemptError, Due, NewItem, Progress, Status, WorkItem};
pub use json::{JsonError, JsonObject};
pub use memory::MemoryStore;
pub use names::{Kind, Lane, NameError, WorkerId};
pub use outcome::{Failure, FailureCode, Outcome};
pub use store::{Hints, Hold, StoreError, Stores, WorkStore};
pub use text::ShortText;
pub use time::{BootTime, Clock, ManualClock};
