//! The limit that the store is measured against: its own statements as plain batched SQL, beside the
//! store itself, over the same items in the same batches.
//!
//! `cargo run --release -p leasehold-sqlite --example plain_sql -- [ITEMS] [BATCH] [full|normal]`
//!
//! Plain SQL: one connection, one transaction per batch, which completes the batch before and claims
//! the next. The store: the same two calls at once, so that they share a commit. Both are durable
//! unless `normal` is said. The file is made in the current directory, which should be on the disk
//! that counts, and deleted afterwards.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measuring program reads the machine's clock and reports on its standard output"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::rules::Transition;
use leasehold_core::store::work::{ClaimRequest, Claimed, Settlement};
use leasehold_core::{
    BootTime, ClaimToken, Clock, Hold, JsonObject, Kind, Lane, NewItem, OrgId, WorkStore, WorkerId,
};
use leasehold_sqlite::{Durability, Options};
use rusqlite::{Connection, params};
use uuid::Uuid;

type Failure = Box<dyn std::error::Error>;

const ENQUEUE: &str = include_str!("../src/work/sql/enqueue.sql");
const DUE: &str = include_str!("../src/work/sql/claim_due.sql");
const TAKE: &str = include_str!("../src/work/sql/claim_take.sql");
const COMPLETE: &str = include_str!("../src/work/sql/settle_complete.sql");

const NOW: i64 = 1_767_225_600_000_000;
const LEASE_END: i64 = NOW + 60_000_000;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, otherwise: usize| {
        arguments
            .get(at)
            .map_or(Ok(otherwise), |text| text.parse::<usize>())
    };
    let (items, batch) = (number(0, 100_000)?, number(1, 1_000)?.max(1));
    let durability = match arguments.get(2).map(String::as_str) {
        Some("normal") => Durability::Normal,
        _ => Durability::Full,
    };
    println!("{items} items in batches of {batch}, {durability:?}");
    let folder = tempfile::tempdir_in(".")?;
    plain(&folder.path().join("plain.db"), items, batch, durability)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()?;
    runtime.block_on(store(
        &folder.path().join("store.db"),
        items,
        batch,
        durability,
    ))
}

fn report(what: &str, items: usize, took: Duration) {
    println!(
        "{what:<14}{:>9.0} items/s",
        items as f64 / took.as_secs_f64()
    );
}

fn plain(path: &Path, items: usize, batch: usize, durability: Durability) -> Result<(), Failure> {
    // Made by the store, so that it has the very schema.
    drop(leasehold_sqlite::open(
        path,
        Options::new(Arc::new(MachineClock::start())),
    )?);
    let db = Connection::open(path)?;
    let synchronous = if durability == Durability::Full {
        "FULL"
    } else {
        "NORMAL"
    };
    db.pragma_update(None, "synchronous", synchronous)?;
    db.pragma_update(None, "cache_size", -32_768)?;
    db.pragma_update_and_check(None, "wal_autocheckpoint", 4_000, |_| Ok(()))?;

    let org = OrgId::SINGLE.as_uuid().into_bytes();
    let started = Instant::now();
    let mut left = items;
    while left > 0 {
        let count = left.min(batch);
        db.execute_batch("BEGIN IMMEDIATE")?;
        for number in 0..count {
            plain_enqueue(&db, org, number)?;
        }
        db.execute_batch("COMMIT")?;
        left -= count;
    }
    report("plain enqueue", items, started.elapsed());

    let started = Instant::now();
    let mut held: Vec<[u8; 16]> = Vec::new();
    let mut token = [0; 16];
    loop {
        db.execute_batch("BEGIN IMMEDIATE")?;
        let mut complete = db.prepare_cached(COMPLETE)?;
        for id in held.drain(..) {
            complete.execute(params![id, org, token, NOW, None::<&str>])?;
        }
        token = Uuid::new_v4().into_bytes();
        held = plain_claim(&db, token, batch)?;
        db.execute_batch("COMMIT")?;
        if held.is_empty() {
            break;
        }
    }
    report("plain drain", items, started.elapsed());
    Ok(())
}

fn plain_enqueue(db: &Connection, org: [u8; 16], number: usize) -> Result<(), Failure> {
    let id = Uuid::now_v7().into_bytes();
    let nil = [0_u8; 16];
    let payload = format!("{{\"id\":{number}}}");
    db.prepare_cached(ENQUEUE)?.execute(params![
        id,
        org,
        NOW,
        NOW,
        nil,
        "NOOP",
        nil,
        id,
        nil,
        None::<&str>,
        "default",
        0,
        NOW,
        3,
        payload
    ])?;
    Ok(())
}

fn plain_claim(db: &Connection, token: [u8; 16], limit: usize) -> Result<Vec<[u8; 16]>, Failure> {
    let mut due = db.prepare_cached(DUE)?;
    let before_all: &[u8] = &[];
    let limit = i64::try_from(limit)?;
    let params = params!["default", "NOOP", 0, i64::MIN, before_all, NOW, limit];
    // What a worker needs of a row: which item it is, and its payload.
    let due: Vec<(i64, [u8; 16], String)> = due
        .query_map(params, |row| {
            Ok((row.get("rowid")?, row.get("id")?, row.get("payload")?))
        })?
        .collect::<Result<_, _>>()?;
    let mut take = db.prepare_cached(TAKE)?;
    let mut claimed = Vec::with_capacity(due.len());
    for (rowid, id, payload) in due {
        std::hint::black_box(payload);
        take.execute(params![rowid, token, "worker", LEASE_END, NOW])?;
        claimed.push(id);
    }
    Ok(claimed)
}

async fn store(
    path: &Path,
    items: usize,
    batch: usize,
    durability: Durability,
) -> Result<(), Failure> {
    let clock = Arc::new(MachineClock::start());
    let options = Options::new(clock.clone()).with_durability(durability);
    let store = leasehold_sqlite::open(path, options)?;
    let kind = Kind::parse("NOOP")?;

    let started = Instant::now();
    let mut left = items;
    while left > 0 {
        let count = left.min(batch);
        let new = (0..count).map(|number| {
            let payload = JsonObject::parse(&format!("{{\"id\":{number}}}"))?;
            Ok(NewItem::new(kind.clone(), payload, clock.now()))
        });
        store
            .enqueue(OrgId::SINGLE, new.collect::<Result<_, Failure>>()?)
            .await?;
        left -= count;
    }
    report("store enqueue", items, started.elapsed());

    let started = Instant::now();
    let mut held: Vec<Settlement> = Vec::new();
    let mut done = 0;
    while done < items {
        let request = ClaimRequest {
            token: ClaimToken::mint(),
            worker: WorkerId::parse("worker")?,
            lanes: vec![Lane::default()],
            kinds: vec![kind.clone()],
            lease: Duration::from_mins(1),
            limit: u32::try_from(batch)?,
            tenant_cap: None,
        };
        let (settled, claimed) = tokio::join!(store.settle(&held), store.claim(&request));
        done += settled?.len();
        held = claimed?
            .into_iter()
            .map(|claimed| complete(&claimed, request.token))
            .collect();
    }
    report("store drain", items, started.elapsed());
    println!("{:?}", store.stats());
    Ok(())
}

fn complete(claimed: &Claimed, token: ClaimToken) -> Settlement {
    Settlement {
        hold: Hold {
            org_id: claimed.org_id,
            item_id: claimed.item.id,
            token,
        },
        transition: Transition::Complete { result: None },
    }
}

/// The machine's own time.
#[derive(Debug)]
struct MachineClock {
    started: Instant,
}

impl MachineClock {
    fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::now()
    }

    fn elapsed(&self) -> BootTime {
        BootTime::new(self.started.elapsed())
    }
}
