//! The runtime from outside: workers over real stores, with time and faults in the case's hands.

mod attempts;
mod cancelling;
mod claiming;
#[cfg(test)]
mod harness;
mod keeping;
mod stopping;
mod sweeping;
#[cfg(test)]
mod trouble;
