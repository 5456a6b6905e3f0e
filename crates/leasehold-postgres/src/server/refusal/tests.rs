//! What is said of servers that take no connection, by servers that say no more than that.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Far more than any of these servers takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// "You are known", and "ask me".
const GREETING: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

/// "Your password, in the clear".
const ASKS_FOR_PASSWORD: &[u8] = b"R\0\0\0\x08\0\0\0\x03";

/// What is asked for before anything else, in the place of a version.
const WANTS_TLS: [u8; 4] = [4, 210, 22, 47];

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).unwrap();
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

/// A refusal as the server words it, with what must not be repeated.
fn refuses(code: &str, words: &str) -> Vec<u8> {
    let fields = format!("SFATAL\0VFATAL\0C{code}\0M{words} for user \"zoe\"\0\0");
    message(b'E', fields.as_bytes())
}

/// The answer to the only question that is asked.
fn is_of_version(number: &str) -> Vec<u8> {
    let mut row = vec![0, 1];
    row.extend(u32::try_from(number.len()).unwrap().to_be_bytes());
    row.extend(number.as_bytes());
    let column = b"\0\x01server_version_num\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\0";
    [
        message(b'T', column),
        message(b'D', &row),
        message(b'C', b"SHOW\0"),
        message(b'Z', b"I"),
    ]
    .concat()
}

/// Takes one connection, says what is to be said at each turn, and hangs up.
async fn serve(listener: TcpListener, turns: Vec<Vec<u8>>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut start = first_words(&mut stream).await;
    if start[4..8] == WANTS_TLS {
        stream.write_all(b"N").await.unwrap();
        start = first_words(&mut stream).await;
    }
    for turn in turns {
        assert!(!start.is_empty());
        stream.write_all(&turn).await.unwrap();
        start = first_words(&mut stream).await;
    }
}

/// What the client says next; nothing once it has gone.
async fn first_words(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = vec![0; 4_096];
    let length = stream.read(&mut heard).await.unwrap_or(0);
    heard.truncate(length.max(8));
    heard
}

/// What is said of a server that takes those turns, and where it is.
async fn told_of(turns: Vec<Vec<u8>>, words: &str) -> (String, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(serve(listener, turns));
    let told = told_at(&format!("postgres://zoe{words}"), &place).await;
    serving.abort();
    (told, place)
}

async fn told_at(user_and_words: &str, place: &str) -> String {
    let address = user_and_words.replace("PLACE", place);
    let server = Server::at(&address).unwrap();
    let error = server.lone(PATIENCE).await.expect_err(&address);
    error.to_string()
}

#[tokio::test]
async fn what_a_server_refuses_is_told_with_what_to_do() {
    for (turns, words, what) in [
        (
            vec![
                ASKS_FOR_PASSWORD.to_vec(),
                refuses("28P01", "password authentication failed"),
            ],
            ":hunter2@PLACE/queue",
            "PLACE refused the password; correct it",
        ),
        (
            vec![ASKS_FOR_PASSWORD.to_vec()],
            "@PLACE/queue",
            "PLACE asks for a password, and the address has none; give it one",
        ),
        (
            vec![refuses("28000", "no pg_hba.conf entry")],
            "@PLACE/queue?sslmode=disable",
            "PLACE does not let this user into the database \"queue\" from here; create the user, or add a \
             line for it to the server's pg_hba.conf, which may want TLS (sslmode=require)",
        ),
        (
            vec![refuses("3D000", "database does not exist")],
            "@PLACE/queue",
            "PLACE has no database \"queue\"; create it",
        ),
        (
            vec![refuses("42501", "permission denied")],
            "@PLACE",
            "PLACE lets this user in, but not into the database of its user's name; grant it",
        ),
        (
            vec![refuses("53300", "too many connections")],
            "@PLACE/queue",
            "PLACE takes no more connections; raise its max_connections",
        ),
        (
            vec![message(
                b'E',
                b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0",
            )],
            "@PLACE/queue",
            "PLACE takes no connections now: the database system is starting up; wait until it does",
        ),
        (
            vec![message(
                b'E',
                b"SFATAL\0VFATAL\0C57P03\0Mthe database system is shutting down\0\0",
            )],
            "@PLACE/queue",
            "PLACE takes no connections now: the database system is shutting down; wait until it does",
        ),
        (
            vec![refuses("XX000", "something else")],
            "@PLACE/queue",
            "PLACE refused the connection (SQLSTATE XX000); its log says why",
        ),
        (
            vec![],
            "@PLACE/queue",
            "PLACE closed the connection before it was made; check that a PostgreSQL server is there",
        ),
        (
            vec![],
            "@PLACE/queue?sslmode=require",
            "PLACE offers no TLS, and sslmode asks for it; set ssl = on in the server's settings",
        ),
        (
            vec![GREETING.to_vec(), is_of_version("140012")],
            "@PLACE/queue",
            "the server at PLACE is PostgreSQL 14, and 15 is the oldest that is tested; upgrade the server",
        ),
    ] {
        let (told, place) = told_of(turns, words).await;
        let what = what.replace("PLACE", &place);
        assert!(told.contains(&what), "{what}\nis not what was told: {told}");
        assert!(!told.contains("zoe") && !told.contains("hunter2"), "{told}");
        assert!(
            !told.contains("db error") && !told.contains("to server"),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_new_enough_is_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("postgres://zoe@{}/queue", listener.local_addr().unwrap());
    let serving = tokio::spawn(serve(
        listener,
        vec![GREETING.to_vec(), is_of_version("150000")],
    ));
    Server::at(&address).unwrap().lone(PATIENCE).await.unwrap();
    serving.await.unwrap();
}

#[tokio::test]
async fn where_no_server_is_that_is_told_with_what_to_do() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = gone.local_addr().unwrap().to_string();
    drop(gone);
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().display().to_string();
    for (address, what) in [
        (
            format!("postgres://zoe:hunter2@{place}/queue"),
            format!("nothing takes connections at {place}; start the server"),
        ),
        (
            "postgres://zoe:hunter2@no-such-host.invalid:5433/queue".to_owned(),
            "the host of no-such-host.invalid:5433 is not known: ".to_owned(),
        ),
        (
            format!("host={folder} user=zoe password=hunter2"),
            format!("there is no socket {folder}/.s.PGSQL.5432; start the server"),
        ),
    ] {
        let told = told_at(&address, "").await;
        assert!(told.contains(&what), "{what}\nis not what was told: {told}");
        assert!(!told.contains("zoe") && !told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = listener.local_addr().unwrap();
    let server = Server::at(&format!("postgres://zoe:hunter2@{place}/queue")).unwrap();
    let error = server.lone(Duration::from_millis(100)).await.unwrap_err();
    let what = format!("{place} did not answer within 0.1 s; check that the host is up");
    assert!(error.to_string().contains(&what), "{error}");
}
