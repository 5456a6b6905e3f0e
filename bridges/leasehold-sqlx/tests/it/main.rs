//! The bridge on a real server, which is found or started as for the Postgres store's own tests.

#[cfg(test)]
#[path = "../../../../crates/leasehold-postgres/tests/it/cluster.rs"]
mod cluster;
#[cfg(test)]
mod enqueue;
#[cfg(test)]
#[path = "../../../../crates/leasehold-postgres/tests/it/server.rs"]
mod server;
