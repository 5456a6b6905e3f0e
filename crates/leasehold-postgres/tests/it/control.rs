//! The negative control of both fences: a tenant predicate is taken out of a statement on its way to the
//! server. With the policies the contract's cases about tenants hold all the same; without them they fail, so
//! it is the policies that hold them.
//!
//! What it does not cover, because no policy can: a batch of settles or renewals names all its orgs at once,
//! and among those the predicate alone keeps them apart.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Stores;
use leasehold_postgres::{PostgresStore, Purpose};
use leasehold_testkit::Harness;
use leasehold_testkit::contract::{self, Fixture, tenants};

use crate::cluster;
use crate::harness::OneSchema;
use crate::swaps::{Swap, Swapper};

type Case = for<'f> fn(&'f Fixture) -> Pin<Box<dyn Future<Output = ()> + 'f>>;

/// A statement without its tenant predicate, and the case that is about it.
struct Mutant {
    /// Part of the statement's text, and in it the predicate.
    part: &'static str,
    predicate: &'static str,
    /// What stands in its place; true of every row, and naming what the predicate named.
    instead: &'static str,
    case: Case,
}

macro_rules! mutants {
    ($($case:ident: $part:literal, $predicate:literal => $instead:literal;)*) => {
        &[$(Mutant {
            part: $part,
            predicate: $predicate,
            instead: $instead,
            case: |fixture| Box::pin(tenants::$case(fixture)),
        }),*]
    };
}

const MUTANTS: &[Mutant] = mutants! {
    get_keeps_to_its_org:
        "work_items where org_id = $1 and id = $2", "org_id = $1" => "$1=$1::uuid";
    get_by_key_keeps_to_its_org:
        "work_items where org_id = $1 and idempotency_key = $2", "org_id = $1" => "$1=$1::uuid";
    cancel_keeps_to_its_org:
        ".ready\n    where id = $1 and org_id = $2", "org_id = $2" => "$2=$2::uuid";
    retry_keeps_to_its_org:
        "where id = $1 and org_id = $2 and not is_done", "org_id = $2" => "$2=$2::uuid";
    requeue_stale_keeps_to_its_org:
        "where org_id = $1 and lease_expires_at", "org_id = $1" => "$1=$1::uuid";
    mark_audited_keeps_to_its_org:
        "where dead.org_id = $1 and", "dead.org_id = $1" => "$1=$1::uuid";
    events_keep_to_their_org:
        "where org_id = $1 and stream = $2 and seq > $3", "org_id = $1" => "$1=$1::uuid";
    schedules_keep_to_their_org:
        "where org_id = $1\n    order by id", "org_id = $1" => "$1=$1::uuid";
};

/// As above, for statements of whole batches.
const BATCH_MUTANTS: &[Mutant] = mutants! {
    a_settle_with_the_right_token_and_the_wrong_org_is_refused:
        "c.org_id = a.org_id and c.token = a.token\n    where a.transition",
        "c.org_id = a.org_id" => "true";
    a_settle_with_the_right_token_and_the_wrong_org_is_refused:
        "where c.id = a.id and c.org_id = a.org_id and c.token = a.token\n        and",
        "c.org_id = a.org_id" => "true";
    a_renewal_with_the_right_token_and_the_wrong_org_is_refused:
        "c.org_id = a.org_id and c.token = a.token\n    where c.lease_expires_at",
        "c.org_id = a.org_id" => "true";
};

macro_rules! cases {
    ($($case:ident)*) => {
        &[$((stringify!($case), (|fixture| Box::pin(tenants::$case(fixture))) as Case)),*]
    };
}

/// Every case of the contract that is about tenants.
const CASES: &[(&str, Case)] = cases! {
    enqueue_keeps_to_its_org
    get_keeps_to_its_org
    get_by_key_keeps_to_its_org
    list_keeps_to_its_org
    cancel_keeps_to_its_org
    retry_keeps_to_its_org
    requeue_stale_keeps_to_its_org
    orphan_stale_keeps_to_its_org
    unaudited_keeps_to_its_org
    mark_audited_keeps_to_its_org
    a_settle_with_the_right_token_and_the_wrong_org_is_refused
    the_wrong_org_is_refused_beside_the_right_one
    a_settle_asked_again_with_the_wrong_org_is_refused
    a_renewal_with_the_right_token_and_the_wrong_org_is_refused
    events_keep_to_their_org
    an_outbox_row_stays_with_its_first_org
    markers_keep_to_their_org
    schedules_keep_to_their_org
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fence {
    Up,
    Down,
}

thread_local! {
    /// What the next case is opened with: its runtime opens it on the thread that runs it.
    static NEXT: Cell<(&'static [Mutant], Fence)> = const { Cell::new((&[], Fence::Up)) };
}

/// A schema whose store loses predicates on the way.
struct Sabotaged {
    on: OneSchema,
    store: Arc<PostgresStore>,
    proxy: Swapper,
    mutants: usize,
}

impl Harness for Sabotaged {
    fn is_possible() -> bool {
        cluster::shared().is_ok()
    }

    async fn open() -> Self {
        let (mutants, fence) = NEXT.get();
        let swaps = mutants.iter().map(Mutant::swap).collect();
        let (on, address, options) = match fence {
            Fence::Up => {
                let on = OneSchema::fenced().await.expect("it is possible");
                let system = on.address_of(Purpose::System);
                let options = on.options().with_system_login(system);
                let address = on.address_of(Purpose::Runtime);
                (on, address, options)
            }
            Fence::Down => {
                let on = OneSchema::new().await.expect("it is possible");
                let (address, options) = (on.address().to_owned(), on.options());
                (on, address, options)
            }
        };
        let proxy = Swapper::to(&address, swaps);
        let options = options.without_migrating();
        let store = leasehold_postgres::connect(proxy.address(), options).await;
        Self {
            on,
            store: store.unwrap(),
            proxy,
            mutants: mutants.len(),
        }
    }

    fn stores(&self) -> Stores {
        self.store.stores()
    }

    async fn advance(&self, duration: Duration) {
        self.on.advance(duration).await;
    }

    async fn second_handle(&self) -> Stores {
        self.store.stores()
    }
}

impl Drop for Sabotaged {
    /// A mutant of one case that its case never met shows nothing.
    fn drop(&mut self) {
        if self.mutants == 1 && !std::thread::panicking() {
            assert!(
                self.proxy.swapped() > 0,
                "the statement is not as the mutant says"
            );
        }
    }
}

impl Mutant {
    fn swap(&self) -> Swap {
        // Of one length, so that no message changes its own.
        let instead = format!("{:width$}", self.instead, width = self.predicate.len());
        let sabotaged = self.part.replace(self.predicate, &instead);
        assert_ne!(sabotaged, self.part);
        assert_eq!(sabotaged.len(), self.part.len());
        Swap {
            from: self.part.as_bytes().to_vec(),
            to: sabotaged.into_bytes(),
        }
    }
}

/// Whether the case holds.
fn holds(case: Case, mutants: &'static [Mutant], fence: Fence) -> bool {
    NEXT.set((mutants, fence));
    let run = || contract::run::<Sabotaged>(async |fixture| case(fixture).await);
    catch_unwind(AssertUnwindSafe(run)).is_ok()
}

#[test]
fn a_statement_without_its_predicate_is_held_by_the_policies_and_by_nothing_else() {
    if !Sabotaged::is_possible() {
        return;
    }
    for mutant in MUTANTS.iter().chain(BATCH_MUTANTS) {
        let (case, alone) = (mutant.case, std::slice::from_ref(mutant));
        assert!(
            holds(case, alone, Fence::Up),
            "with the fence: {}",
            mutant.part
        );
        assert!(
            !holds(case, alone, Fence::Down),
            "without it: {}",
            mutant.part
        );
    }
}

/// All at once, and every case.
#[test]
fn without_any_of_these_predicates_the_policies_keep_every_tenant_to_itself() {
    if !Sabotaged::is_possible() {
        return;
    }
    for (name, case) in CASES {
        assert!(holds(*case, MUTANTS, Fence::Up), "{name}");
    }
}
