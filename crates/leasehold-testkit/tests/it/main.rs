//! The testkit's own tests: the contract over the memory store, and what holds the suite together.

#[cfg(test)]
mod cases;
mod memory;
#[cfg(test)]
mod tenantless;
