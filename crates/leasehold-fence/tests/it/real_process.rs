//! Real processes: started, killed and frozen, in real time.
//!
//! A caller that is to die is this very test binary, started again in a role: see [`caller`].

mod caller;
mod children;
mod faults;
mod fights;
mod groups;
mod matrix;
mod outputs;
mod program;
mod requests;
mod starting;
