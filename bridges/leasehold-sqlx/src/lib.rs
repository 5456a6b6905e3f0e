//! Enqueues work items inside a transaction of sqlx, on Postgres.
//!
//! ```no_run
//! # use leasehold::{Client, Work};
//! # async fn run<W: Work>(pool: sqlx::PgPool, client: Client, invoice: W)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! use leasehold_postgres::Producer;
//!
//! let producer = Producer::new("leasehold")?;
//! let mut tx = pool.begin().await?;
//! sqlx::query("insert into invoices (id) values (7)").execute(&mut *tx).await?;
//! let item = client.enqueue(&invoice).key_text("invoice-7").into_item()?;
//! leasehold_sqlx::enqueue_in(&producer, &mut tx, client.context().org_id(), &[item]).await?;
//! tx.commit().await?;
//! # Ok(()) }
//! ```
//!
//! The login needs the right to execute the schema's function `enqueue_many`, and no other. The rules are
//! those of [`Producer`], which does the same through tokio-postgres.

use leasehold_core::store::StoreResult;
use leasehold_core::{NewItem, OrgId, StoreError};
use leasehold_postgres::{Call, PendingHint, Placed, Producer, error_of};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use uuid::Uuid;

/// Enqueues items as part of the transaction, and answers the fate of each in the batch's order. The commit
/// hints the workers. As [`Producer::enqueue_in`], which says what an error leaves and what cancelling does.
///
/// # Errors
/// [`StoreError::Refused`] names the item and what to correct; [`StoreError::Retry`] asks for the whole
/// transaction again. The transaction can then only be rolled back, to a savepoint or whole.
pub async fn enqueue_in(
    producer: &Producer,
    transaction: &mut PgConnection,
    org: OrgId,
    batch: &[NewItem],
) -> StoreResult<Vec<Placed>> {
    let calls = producer.calls_hinting(org, batch)?;
    send(transaction, &calls).await
}

/// As [`enqueue_in`], with the hint left to be given after the commit, by [`send_hint`].
///
/// # Errors
/// As [`enqueue_in`].
pub async fn enqueue_in_unhinted(
    producer: &Producer,
    transaction: &mut PgConnection,
    org: OrgId,
    batch: &[NewItem],
) -> StoreResult<(Vec<Placed>, PendingHint)> {
    let calls = producer.calls_unhinted(org, batch)?;
    let placed = send(transaction, &calls).await?;
    let hint = producer.hint_of(batch, &placed);
    Ok((placed, hint))
}

/// Gives a hint that a committed transaction owed. Lost, it costs the workers' poll interval and no more.
///
/// # Errors
/// The database's; the items are committed all the same.
pub async fn send_hint(connection: &mut PgConnection, hint: PendingHint) -> StoreResult<()> {
    let lanes = hint.lanes();
    if lanes.is_empty() {
        return Ok(());
    }
    sqlx::query(hint.text())
        .bind(hint.channel())
        .bind(lanes)
        .execute(connection)
        .await
        .map_err(|error| store_error(&error))?;
    Ok(())
}

async fn send(transaction: &mut PgConnection, calls: &[Call]) -> StoreResult<Vec<Placed>> {
    let mut placed = Vec::new();
    for call in calls {
        let rows = sqlx::query(AssertSqlSafe(call.text()))
            .bind(call.items())
            .bind(call.org())
            .bind(call.hints())
            .fetch_all(&mut *transaction)
            .await
            .map_err(|error| store_error(&error))?;
        for row in rows {
            let read = || Ok((row.try_get::<Uuid, _>(0)?, row.try_get::<&str, _>(1)?));
            let (id, fate) = read().map_err(|error| store_error(&error))?;
            placed.push(Placed::read(id, fate)?);
        }
    }
    Ok(placed)
}

fn store_error(error: &sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::Database(refusal) => {
            // Without the detail, which repeats the row's values.
            error_of(&refusal.code().unwrap_or_default(), refusal.message())
        }
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}
