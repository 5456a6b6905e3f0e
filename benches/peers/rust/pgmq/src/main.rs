//! pgmq, by the SQL that its crate installs. It has no worker, so this is the loop that its documentation
//! shows, in batches: several readers that each read, handle and delete.

use std::ops::Range;
use std::time::Duration;

use measure::setting;
use pgmq::{Message, PGMQueueExt};
use serde_json::{Value, json};
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "noop";
/// How long a message stays hidden that was read and not deleted.
const HIDDEN_SECONDS: i32 = 600;

#[derive(Clone)]
struct Peer {
    queue: PGMQueueExt,
}

impl measure::Peer for Peer {
    async fn setup(&self) {
        let installed = self.queue.install_sql_from_embedded().await;
        installed.expect("pgmq is installed");
        self.queue.create(QUEUE).await.expect("the queue is made");
    }

    async fn one(&self, id: u64) {
        let sent = self.queue.send(QUEUE, &json!({ "id": id })).await;
        sent.expect("the message is sent");
    }

    async fn many(&self, ids: Range<u64>) {
        let messages: Vec<Value> = ids.map(|id| json!({ "id": id })).collect();
        let sent = self.queue.send_batch(QUEUE, &messages).await;
        sent.expect("the messages are sent");
    }

    async fn start(&self) {
        for _ in 0..setting("READERS", 4) {
            tokio::spawn(read(self.queue.clone(), setting("BATCH", 100)));
        }
    }
}

async fn read(queue: PGMQueueExt, batch: i32) {
    let (patience, pause) = (Duration::from_secs(5), Duration::from_millis(100));
    loop {
        let read =
            queue.read_batch_with_poll(QUEUE, HIDDEN_SECONDS, batch, Some(patience), Some(pause));
        let messages: Vec<Message<Value>> = read.await.expect("messages are read");
        messages.iter().for_each(|_| measure::handled());
        let ids: Vec<i64> = messages.iter().map(|message| message.msg_id).collect();
        if !ids.is_empty() {
            let deleted = queue.delete_batch(QUEUE, &ids).await;
            deleted.expect("messages are deleted");
        }
    }
}

#[tokio::main]
async fn main() {
    let pool = PgPoolOptions::new().max_connections(12);
    let pool = pool.connect(&measure::url()).await.expect("the database");
    let queue = PGMQueueExt::new_with_pool(pool).await;
    measure::run(Peer { queue }).await
}
