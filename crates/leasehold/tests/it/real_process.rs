//! Real processes on a real file: killed, frozen and locked out, in real time.
//!
//! A worker process is this very test binary, started again in a role: see [`role`].

mod frozen;
mod killed;
mod locked;
mod role;
