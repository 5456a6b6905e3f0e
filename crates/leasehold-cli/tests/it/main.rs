//! The command as a person or a script uses it: arguments in, streams and an exit code out.

#[cfg(test)]
mod bench;
#[cfg(test)]
#[path = "../../../leasehold-postgres/tests/it/cluster.rs"]
mod cluster;
mod config;
#[cfg(test)]
mod container;
mod demo;
#[cfg(test)]
mod dev;
#[cfg(test)]
mod doctor;
mod enqueue;
#[cfg(test)]
mod exec;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod health;
mod help;
mod items;
mod migrate;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod process;
mod readme;
#[cfg(test)]
mod run;
#[cfg(test)]
mod scarce;
mod schedules;
#[cfg(test)]
#[path = "../../../leasehold-postgres/tests/it/server.rs"]
mod server;
#[cfg(test)]
mod tasks;
#[cfg(feature = "otel")]
#[cfg(test)]
mod traces;
#[cfg(test)]
mod until_empty;
