//! The store on a real server: the contract, and what is of this backend alone.

#[cfg(test)]
mod catalogue;
#[cfg(test)]
mod claims;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod control;
#[cfg(test)]
mod cutoff;
#[cfg(test)]
mod enqueue;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fences;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod herd;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod keys;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod maintenance;
#[cfg(test)]
mod migrations;
#[cfg(test)]
mod misled;
#[cfg(test)]
mod next_schema;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod own;
#[cfg(test)]
mod payloads;
#[cfg(test)]
mod pinned;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod pooler;
#[cfg(test)]
mod producer;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod server;
#[cfg(test)]
mod skewed;
#[cfg(test)]
mod sql_enqueue;
#[cfg(test)]
mod swaps;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod worker;

mod contract {
    //! Every promise of the stores.
    use crate::harness::OneSchema;

    leasehold_testkit::store_contract!(OneSchema);
}

mod contract_on_the_next_schema {
    //! Every promise again, by a build that does not know the schema's last steps.
    use crate::next_schema::NextSchema;

    leasehold_testkit::store_contract!(NextSchema);
}

mod contract_fenced {
    //! Every promise of the stores again, with the fence between tenants raised.
    use crate::harness::Fenced;

    leasehold_testkit::store_contract!(Fenced);
}
