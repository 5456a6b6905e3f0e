//! The split layout without fences, drained by a real client: what is left between plain SQL and us.
//!
//! It is no queue. It checks the attempt of an item and nothing else, keeps no history, and recovers
//! nothing. Each lane keeps one transaction in flight that ends what has finished and claims the next
//! batch, its statements pipelined in one round trip. `LANES`, `BATCH`.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream, try_join};
use measure::setting;
use tokio::sync::{Notify, mpsc};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, NoTls, Statement};

const SCHEMA: &str = include_str!("../../../limits/split.schema.sql");

/// Answers with one row of arrays, which both ends handle faster than a row for each item.
const CLAIM: &str = "
with claimed as (
  delete from split_ready where ctid = any(array(
    select ctid from split_ready
    where lane = 1 and available_at <= now()
      and (priority, available_at, id) >= ($3::smallint, to_timestamp($4::float8 - 0.000002), $5::bigint)
    order by priority, available_at, id limit $1 for update skip locked))
  returning id, priority, available_at
), leased as (
  insert into split_leases (ids, worker, lease_until)
  select array_agg(id), $2::bigint, now() + interval '1 min' from claimed having count(*) > 0
  returning token
)
select array_agg(i.id), array_agg(i.attempt::bigint), array_agg(i.payload), max(c.priority),
  max(extract(epoch from c.available_at))::float8, max(c.id), max(l.token)
from claimed c join split_items i on i.id = c.id cross join leased l having count(*) > 0";

const END: &str = "
with ended as (
  delete from split_items i using unnest($1::bigint[], $2::bigint[]) as t (id, attempt)
  where i.id = t.id and i.attempt = t.attempt
), freed as (
  delete from split_leases where token = any($3::bigint[])
)
select 1";

const ENQUEUE_ONE: &str = "
with item as (insert into split_items (payload) values ($1) returning id),
  ready as (insert into split_ready (id) select id from item)
select pg_notify('split_ready', '')";

const ENQUEUE_MANY: &str = "
with items as (insert into split_items (payload) select * from unnest($1::bytea[]) returning id)
insert into split_ready (id) select id from items";

#[derive(Clone)]
struct Peer {
    client: Arc<Client>,
    /// Prepared on first use: before `setup` there are no tables.
    one: Arc<tokio::sync::OnceCell<Statement>>,
    many: Arc<tokio::sync::OnceCell<Statement>>,
}

impl measure::Peer for Peer {
    async fn setup(&self) {
        let made = self.client.batch_execute(SCHEMA).await;
        made.expect("the tables are made");
    }

    async fn one(&self, id: u64) {
        let prepare = || async { self.client.prepare(ENQUEUE_ONE).await };
        let statement = self.one.get_or_try_init(prepare).await.expect("prepared");
        let sent = self.client.execute(statement, &[&payload(id)]).await;
        sent.expect("the item is enqueued");
    }

    async fn many(&self, ids: Range<u64>) {
        let prepare = || async { self.client.prepare(ENQUEUE_MANY).await };
        let statement = self.many.get_or_try_init(prepare).await.expect("prepared");
        let payloads: Vec<Vec<u8>> = ids.map(payload).collect();
        let sent = self.client.execute(statement, &[&payloads]).await;
        sent.expect("the items are enqueued");
    }

    async fn start(&self) {
        let wake = Arc::new(Notify::new());
        tokio::spawn(listen(wake.clone()));
        for worker in 0..setting("LANES", 2) {
            tokio::spawn(drain(worker, setting("BATCH", 500), wake.clone()));
        }
    }
}

fn payload(id: u64) -> Vec<u8> {
    format!("{{\"id\":{id}}}").into_bytes()
}

async fn connect() -> Client {
    let connected = tokio_postgres::connect(&measure::url(), NoTls).await;
    let (client, connection) = connected.expect("the database");
    tokio::spawn(connection);
    client
}

/// Wakes the lanes that wait.
async fn listen(wake: Arc<Notify>) {
    let connected = tokio_postgres::connect(&measure::url(), NoTls).await;
    let (client, mut connection) = connected.expect("the database");
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    let listening = tokio::spawn(async move {
        let listening = client.batch_execute("listen split_ready").await;
        listening.expect("it listens");
        client
    });
    while let Some(Ok(message)) = messages.next().await {
        if matches!(message, AsyncMessage::Notification(_)) {
            wake.notify_waiters();
        }
    }
    drop(listening);
}

struct Ended {
    id: i64,
    attempt: i64,
    lease: i64,
}

/// How far a lane has claimed: priority, time, id.
type Cursor = (i16, f64, i64);

async fn drain(worker: i64, batch: i64, wake: Arc<Notify>) {
    let client = connect().await;
    let prepared = try_join!(
        client.prepare("begin"),
        client.prepare("set local synchronous_commit = off"),
        client.prepare(END),
        client.prepare(CLAIM),
        client.prepare("commit"),
    );
    let (begin, relax, end, claim, commit) = prepared.expect("prepared");
    let (sender, mut ended) = mpsc::unbounded_channel::<Ended>();
    // How many items of a lease still run: its row goes with the last one.
    let mut running: HashMap<i64, usize> = HashMap::new();
    let mut cursor: Cursor = (0, 0.0, 0);
    loop {
        let (mut ids, mut attempts, mut leases) = (Vec::new(), Vec::new(), Vec::new());
        while let Ok(Ended { id, attempt, lease }) = ended.try_recv() {
            ids.push(id);
            attempts.push(attempt);
            let left = running.entry(lease).or_default();
            *left -= 1;
            if *left == 0 {
                running.remove(&lease);
                leases.push(lease);
            }
        }
        let woken = wake.notified();
        tokio::pin!(woken);
        woken.as_mut().enable();
        // A claim lost in a crash only makes its items ready again, so it need not wait for the disk.
        let started = async {
            client.execute(&begin, &[]).await?;
            Ok(())
        };
        let relaxed = async {
            if ids.is_empty() {
                client.execute(&relax, &[]).await?;
            }
            Ok(())
        };
        let finished: [&(dyn ToSql + Sync); 3] = [&ids, &attempts, &leases];
        let (priority, available_at, id) = &cursor;
        let from: [&(dyn ToSql + Sync); 5] = [&batch, &worker, priority, available_at, id];
        let (_, _, _, rows, _) = try_join!(
            started,
            relaxed,
            client.execute(&end, &finished),
            client.query(&claim, &from),
            client.execute(&commit, &[]),
        )
        .expect("a batch ends and the next is claimed");
        let Some(row) = rows.first() else {
            // What came in behind the cursor is found from the start.
            cursor = (0, 0.0, 0);
            if ids.is_empty() {
                let _ = tokio::time::timeout(Duration::from_secs(1), woken).await;
            }
            continue;
        };
        let (claimed, tries): (Vec<i64>, Vec<i64>) = (row.get(0), row.get(1));
        let payloads: Vec<Vec<u8>> = row.get(2);
        cursor = (row.get(3), row.get(4), row.get(5));
        let lease: i64 = row.get(6);
        let count = claimed.len();
        running.insert(lease, count);
        for ((id, attempt), payload) in claimed.into_iter().zip(tries).zip(payloads) {
            let sender = sender.clone();
            tokio::spawn(async move {
                std::hint::black_box(payload.len());
                measure::handled();
                // Fails where the lane is gone, and with it the process.
                let _ = sender.send(Ended { id, attempt, lease });
            });
        }
        // So that a lane does not spin on single items.
        if count < batch as usize {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::main]
async fn main() {
    let client = Arc::new(connect().await);
    measure::run(Peer {
        client,
        one: Arc::default(),
        many: Arc::default(),
    })
    .await
}
