//! How hints travel between processes: NOTIFY after a commit, and LISTEN.
//!
//! **Sending.** What a store has committed is told by a statement of its own, never in the transaction
//! itself: transactions that notify commit one after the other, each waiting for the disk. While
//! one such statement is under way, the lanes to tell gather as a set and go together in the next, so that
//! no rate of commits makes more than one notice at a time, and each lane is in it once.
//!
//! **Hearing.** A pool drops the notices that its connections receive, so the courier has a connection of its
//! own, opened at the first subscription and then used for sending too: notices of this very connection are
//! known by its process number and passed over, because their hints were given when they were sent. After
//! LISTEN has been answered everybody is hinted once, for what came before it; so a subscription is complete
//! from its first moment, and nothing is missed over a lost connection but the time until the poll.
//!
//! **Losing the connection.** It is made again after a pause that doubles, with jitter, until a connection
//! has proved itself. What breaks without a word is found by asking: a connection on which nothing happens is
//! asked now and then, and given up if it does not answer, or if its server takes no more writes, as one does
//! that was demoted. Hints to be sent meanwhile wait. Nothing is lost with all this but promptness: who waits
//! for hints also polls.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::Duration;

use leasehold_core::{Lane, StoreError};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Notification};

use super::Board;
use crate::error::{Answer, Fault};
use crate::home::Home;
use crate::options::{Options, Wakeup};
use crate::server::{Pool, Server};
use crate::store::Schema;

/// An idle connection is asked this often whether it is alive: a few bytes, and less often than workers poll,
/// which is what finds work until it was asked.
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// The first pause before connecting again: a restart takes about as long.
const PAUSE: Duration = Duration::from_millis(100);

/// The longest pause: next to nothing to ask for, and a server that is back is soon listened to.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// More lanes than any installation has; what is beyond them while the database is away is not told.
const WAITING_MAX: usize = 1_000;

/// The longest name of a channel.
const CHANNEL_BYTES_MAX: usize = 63;

/// Tells several lanes by one statement.
pub(crate) const TELL: &str = "select pg_notify($1, lane) from unnest($2::text[]) as lane";

/// Where the courier goes.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    /// Named in the server's list of sessions as the listener.
    server: Server,
    pool: Pool,
    channel: String,
    wakeup: Wakeup,
    /// How long any answer is waited for.
    patience: Duration,
}

impl Route {
    pub(crate) fn new(pool: Pool, schema: &Schema, options: &Options) -> Self {
        Self {
            server: pool.server().clone().with_role("listener"),
            pool,
            channel: channel_of(schema),
            wakeup: options.wakeup,
            patience: options.patience,
        }
    }
}

/// The channel of a schema. Names that are alike for its whole length share one, which is harmless: a hint
/// may be false.
pub(crate) fn channel_of(schema: &Schema) -> String {
    let mut channel = format!("leasehold_{}", schema.name());
    channel.truncate(CHANNEL_BYTES_MAX);
    channel
}

/// Sends a store's hints to other processes and brings theirs. It goes when it is dropped, after telling
/// what it still has to tell, unless the server is away.
#[derive(Debug)]
pub(crate) struct Courier {
    orders: Arc<Orders>,
}

impl Courier {
    /// Starts one, where the connections live.
    pub(crate) fn start(route: Route, board: Arc<Board>, home: &Home) -> Self {
        let orders = Arc::new(Orders::default());
        let journey = Journey {
            route,
            board,
            orders: Arc::clone(&orders),
        };
        home.run(journey.run());
        Self { orders }
    }

    /// Sends hints, soon. Lanes that already wait are not told twice.
    pub(crate) fn tell(&self, lanes: &BTreeSet<Lane>) {
        if !lanes.is_empty() {
            self.orders.put(lanes);
        }
    }

    /// Somebody listens from now on.
    pub(crate) fn listen(&self) {
        self.orders.watched.notify_one();
    }

    /// Waits until everything has been told that was to be told before.
    pub(crate) async fn has_told(&self) {
        self.orders.has_told().await;
    }
}

impl Drop for Courier {
    fn drop(&mut self) {
        self.orders.end();
    }
}

/// What the courier is to do.
#[derive(Debug, Default)]
struct Orders {
    standing: Mutex<Standing>,
    /// Wakes the courier; one permit is enough, since it looks at everything.
    changed: Notify,
    /// Wakes the courier for the first who listens.
    watched: Notify,
    /// Wakes whoever waits until everything has been told.
    told: Notify,
}

#[derive(Debug, Default)]
struct Standing {
    waiting: BTreeSet<Lane>,
    /// What a statement under way tells. Here, and not in its future, which may be dropped.
    under_way: BTreeSet<Lane>,
    is_over: bool,
}

impl Orders {
    fn put(&self, lanes: &BTreeSet<Lane>) {
        let mut standing = self.lock();
        let room = WAITING_MAX.saturating_sub(standing.waiting.len());
        standing.waiting.extend(lanes.iter().take(room).cloned());
        drop(standing);
        self.changed.notify_one();
    }

    fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_one();
    }

    /// What to tell next; nothing once it is over and all has been told.
    async fn next(&self) -> Option<BTreeSet<Lane>> {
        loop {
            {
                let mut standing = self.lock();
                if !standing.waiting.is_empty() {
                    standing.under_way = std::mem::take(&mut standing.waiting);
                    return Some(standing.under_way.clone());
                }
                if standing.is_over {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    /// What was under way has been told, or is given up.
    fn done(&self) {
        self.lock().under_way.clear();
        self.told.notify_waiters();
    }

    /// What was under way is to be told again.
    fn give_back(&self) {
        let mut standing = self.lock();
        let lanes = std::mem::take(&mut standing.under_way);
        standing.waiting.extend(lanes);
    }

    async fn is_over(&self) {
        while !self.lock().is_over {
            self.changed.notified().await;
        }
    }

    async fn has_told(&self) {
        loop {
            // Before looking, so that no waking is missed.
            let told = self.told.notified();
            if self.has_nothing_to_tell() {
                return;
            }
            told.await;
        }
    }

    fn has_nothing_to_tell(&self) -> bool {
        let standing = self.lock();
        standing.waiting.is_empty() && standing.under_way.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of one connection.
#[derive(Debug, Default)]
struct Bond {
    /// The number of the server's process for it, by which its own notices are known; 0 until it is known.
    process: AtomicI32,
    listens: AtomicBool,
    /// It has lived for a while.
    is_proved: AtomicBool,
}

/// The courier at work.
struct Journey {
    route: Route,
    board: Arc<Board>,
    orders: Arc<Orders>,
}

impl Journey {
    async fn run(self) {
        if self.tell_until_watched().await {
            self.listen().await;
        }
    }

    /// Tells by connections of the pool until somebody listens. Whether that is why it returned.
    async fn tell_until_watched(&self) -> bool {
        loop {
            let lanes = tokio::select! {
                biased;
                lanes = self.orders.next() => lanes,
                () = self.orders.watched.notified(), if self.route.wakeup == Wakeup::Listen => return true,
            };
            let Some(lanes) = lanes else {
                return false;
            };
            let telling = async {
                let client = self.route.pool.get().await?;
                self.tell(&client, &lanes).await
            };
            if let Err(fault) = self.in_time(telling).await {
                tracing::debug!(error = %fault.0, "other processes were not told of new work; they find it by polling");
            }
            self.orders.done();
        }
    }

    /// Keeps a connection that listens until it is over.
    async fn listen(&self) {
        let mut pause = PAUSE;
        let mut is_known = false;
        loop {
            let bond = Bond::default();
            let Err(fault) = self.attend(&bond).await else {
                return;
            };
            self.orders.give_back();
            if bond.is_proved.load(Ordering::Relaxed) {
                pause = PAUSE;
            }
            let was_listening = bond.listens.load(Ordering::Relaxed);
            if was_listening || !is_known {
                tracing::warn!(
                    error = %fault.0,
                    "not listening for work of other processes; it is found by polling until the \
                     connection is made again"
                );
            }
            is_known = true;
            tokio::select! {
                () = sleep(with_jitter(pause)) => {}
                () = self.orders.is_over() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// One connection, from its making until it breaks or all is over.
    async fn attend(&self, bond: &Bond) -> Answer<()> {
        let server = &self.route.server;
        let connecting = async {
            let connected = server.connect().await;
            connected.map_err(|error| Fault::from(server.unavailable(&error)))
        };
        let (client, mut connection) = self.in_time(connecting).await?;
        let hearing = poll_fn(|context| {
            loop {
                match ready!(connection.poll_message(context)) {
                    Some(Ok(AsyncMessage::Notification(notice))) => self.heard(&notice, bond),
                    // Other messages are for people who look at the server.
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(Fault::from(error))),
                    None => return Poll::Ready(Err(away("the connection was closed"))),
                }
            }
        });
        tokio::select! {
            biased;
            broken = hearing => broken,
            over = self.talk(&client, bond) => over,
        }
    }

    fn heard(&self, notice: &Notification, bond: &Bond) {
        if notice.process_id() == bond.process.load(Ordering::Relaxed) {
            return;
        }
        match Lane::parse(notice.payload()) {
            Ok(lane) => self.board.hint(&BTreeSet::from([lane])),
            // Somebody else's notice; a false hint costs one look.
            Err(_) => self.board.hint_all(),
        }
    }

    async fn talk(&self, client: &Client, bond: &Bond) -> Answer<()> {
        let process = self.in_time(self.begin(client)).await?;
        bond.process.store(process, Ordering::Relaxed);
        bond.listens.store(true, Ordering::Relaxed);
        tracing::info!(
            channel = self.route.channel,
            "listening for work of other processes"
        );
        self.board.hint_all();
        loop {
            match timeout(PROBE_EVERY, self.orders.next()).await {
                Ok(Some(lanes)) => {
                    self.in_time(self.tell(client, &lanes)).await?;
                    self.orders.done();
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    self.in_time(probe(client)).await?;
                    bond.is_proved.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// Begins to listen, and answers the number of the server's process.
    async fn begin(&self, client: &Client) -> Answer<i32> {
        let listen = format!("listen {}", self.route.channel);
        client.batch_execute(&listen).await?;
        let row = client
            .query_typed_one("select pg_backend_pid()", &[])
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Behind a pooler in transaction mode, too: nothing is prepared.
    async fn tell(&self, client: &Client, lanes: &BTreeSet<Lane>) -> Answer<()> {
        let lanes: Vec<&str> = lanes.iter().map(Lane::as_str).collect();
        let params: [(&(dyn ToSql + Sync), Type); 2] = [
            (&self.route.channel, Type::TEXT),
            (&lanes, Type::TEXT_ARRAY),
        ];
        client.query_typed(TELL, &params).await?;
        Ok(())
    }

    /// What does not answer in time is taken for broken.
    async fn in_time<T>(&self, call: impl Future<Output = Answer<T>>) -> Answer<T> {
        match timeout(self.route.patience, call).await {
            Ok(answer) => answer,
            Err(_) => Err(away("the server does not answer")),
        }
    }
}

/// Whether the connection lives, on a server that takes writes: nobody notifies by another.
async fn probe(client: &Client) -> Answer<()> {
    let row = client
        .query_typed_one("show transaction_read_only", &[])
        .await?;
    if row.try_get::<_, &str>(0)? == "on" {
        return Err(away("the server takes no writes"));
    }
    Ok(())
}

fn away(why: &str) -> Fault {
    StoreError::Unavailable(why.to_owned()).into()
}

/// Between the half and the whole of a pause, so that many workers do not come back at one moment.
fn with_jitter(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}
