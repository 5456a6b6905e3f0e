//! An application's own row and the work that follows from it, in one transaction on Postgres.
//!
//! `DATABASE_URL=postgres://… cargo run -p leasehold-examples --bin transactional_enqueue`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use leasehold::{Client, Work};
use leasehold_postgres::tokio_postgres::{self, NoTls};
use leasehold_postgres::{Options, Producer};

#[derive(serde::Serialize, serde::Deserialize)]
struct SendInvoice {
    id: i64,
}

impl Work for SendInvoice {
    const KIND: &'static str = "SEND_INVOICE";
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::var("DATABASE_URL")?;
    let store = leasehold_postgres::connect(&address, Options::default()).await?;
    let client = Client::single_tenant(store.stores())?;

    // The application's own connection, as its own login; it needs no store.
    let producer = Producer::new(Options::SCHEMA)?;
    let (mut database, connection) = tokio_postgres::connect(&address, NoTls).await?;
    tokio::spawn(connection);
    database
        .batch_execute("create temp table invoices (id bigint primary key)")
        .await?;

    let transaction = database.transaction().await?;
    transaction
        .execute("insert into invoices (id) values (7)", &[])
        .await?;
    let item = client
        .enqueue(&SendInvoice { id: 7 })
        .key_text("invoice-7")
        .into_item()?;
    let org = client.context().org_id();
    let placed = producer.enqueue_in(&transaction, org, &[item]).await?;
    transaction.commit().await?;

    println!("invoice 7: {}", placed[0].fate.as_str());
    let stored = client.get(placed[0].id).await?;
    println!("{}", stored.map_or("lost", |item| item.status.as_str()));
    Ok(())
}

fn main() -> std::process::ExitCode {
    leasehold::main(run)
}
