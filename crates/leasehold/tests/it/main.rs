//! The runtime from outside: workers over real stores, with time and faults in the case's hands.

#[cfg(test)]
mod attempts;
#[cfg(test)]
mod blocking;
#[cfg(test)]
mod cancelling;
#[cfg(test)]
mod claiming;
#[cfg(test)]
mod client;
#[cfg(test)]
mod clocks;
#[cfg(test)]
mod gauges;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod living;
#[cfg(test)]
mod panics;
#[cfg(test)]
mod real_process;
#[cfg(test)]
mod seen;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod starting;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod sweeping;
#[cfg(test)]
mod tenants;
#[cfg(test)]
mod texts;
// The workspace is tested with the feature on, since the program has it.
#[cfg(feature = "otel")]
#[cfg(test)]
mod traces;

#[cfg(test)]
mod fencing;
#[cfg(test)]
mod harness;
#[cfg(test)]
#[path = "../processes/losses.rs"]
mod losses;
#[cfg(test)]
mod trouble;
#[cfg(test)]
#[path = "../processes/yard.rs"]
mod yard;
