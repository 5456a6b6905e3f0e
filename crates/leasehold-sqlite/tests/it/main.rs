//! The store on a real file: the contract, and what is of this backend alone.

#[cfg(test)]
mod harness;

mod beside;
mod busy;
#[cfg(test)]
mod commits;
#[cfg(test)]
mod like_memory;
#[cfg(test)]
mod migrations;
#[cfg(test)]
mod opening;
mod real_process;
#[cfg(test)]
mod within;

mod contract {
    //! Every promise of the stores.
    use crate::harness::OneFile;

    leasehold_testkit::store_contract!(OneFile);
}
