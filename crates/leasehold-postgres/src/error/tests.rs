//! Whose fault an error is, by a server that says no more than its greeting.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls};

use super::*;

/// "You are known" and "ask me".
const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// More than the first message of any client here.
const STREAM_BYTES: usize = 4_096;

async fn greeted() -> (Client, DuplexStream) {
    let (stream, mut server) = tokio::io::duplex(STREAM_BYTES);
    server.write_all(GREETING).await.unwrap();
    let mut config = Config::new();
    config.user("nobody");
    let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
    tokio::spawn(connection);
    let mut first = [0; STREAM_BYTES];
    assert_ne!(server.read(&mut first).await.unwrap(), 0);
    (client, server)
}

fn told(error: tokio_postgres::Error) -> StoreError {
    Fault::from(error).0
}

#[tokio::test]
async fn a_parameter_that_cannot_be_written_is_no_outage() {
    let (client, _server) = greeted().await;
    let asked = client.query_typed("select $1", &[(&"words", Type::INT4)]);
    let error = told(asked.await.unwrap_err());
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
}

#[tokio::test]
async fn a_statement_that_cannot_be_written_is_no_outage() {
    let (client, _server) = greeted().await;
    let error = told(client.batch_execute("select '\0'").await.unwrap_err());
    assert!(matches!(error, StoreError::Failed(_)), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_answer_is_an_outage() {
    let (client, mut server) = greeted().await;
    let serving = async {
        let mut question = [0; STREAM_BYTES];
        assert_ne!(server.read(&mut question).await.unwrap(), 0);
        drop(server);
    };
    let (answer, ()) = tokio::join!(client.batch_execute("select 1"), serving);
    let error = told(answer.unwrap_err());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let error = told(client.batch_execute("select 1").await.unwrap_err());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}

#[test]
fn what_a_person_can_put_right_comes_with_what_to_do() {
    for (code, remedy) in [
        ("26000", "postgres.wakeup"),
        ("42P05", "postgres.wakeup"),
        ("42501", "--create-roles"),
    ] {
        let StoreError::Failed(text) = judged(code, "the server's words".to_owned()) else {
            panic!("{code} passes");
        };
        let (why, told) = text.split_once("; ").unwrap();
        assert!(
            why.contains("the server's words") && why.contains(code),
            "{why}"
        );
        assert!(told.contains(remedy), "{told}");
    }
}
