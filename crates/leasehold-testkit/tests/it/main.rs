//! The testkit's own tests: the contract over the memory store, what holds the suite together,
//! and the simulation.

#[cfg(test)]
mod cases;
mod memory;
mod sim;
#[cfg(test)]
mod tenantless;
