//! The source from outside: real workers on paused time, over fakes that refuse what the services do.

#[cfg(test)]
mod harness;
#[cfg(test)]
mod keeping;
#[cfg(test)]
mod messages;
#[cfg(test)]
mod moving;
#[cfg(test)]
mod order;
#[cfg(test)]
mod protecting;
#[cfg(test)]
mod reports;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod world;
