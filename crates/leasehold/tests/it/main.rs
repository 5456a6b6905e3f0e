//! The runtime from outside: workers over real stores, with time and faults in the case's hands.

mod attempts;
mod blocking;
mod cancelling;
mod claiming;
mod client;
mod clocks;
mod keeping;
mod living;
mod panics;
#[cfg(test)]
mod real_process;
mod settling;
mod starting;
mod stopping;
mod sweeping;
mod tenants;
mod texts;

#[cfg(test)]
mod harness;
#[cfg(test)]
mod trouble;
