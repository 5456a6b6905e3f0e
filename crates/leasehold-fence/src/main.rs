//! `leasehold-fence`.

fn main() {}
