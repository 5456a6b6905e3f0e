//! Asking a health port that answers, refuses, says nothing, or says nonsense.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use crate::harness::Place;

/// A port that gives one answer to one request.
fn port(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a caller");
        let mut request = [0; 1024];
        let length = stream.read(&mut request).expect("a request");
        let request = String::from_utf8_lossy(&request[..length]).into_owned();
        assert!(
            request.starts_with("GET /healthz HTTP/1.1\r\nHost: "),
            "{request}"
        );
        if answer.is_empty() {
            // Says nothing until the caller has gone.
            let _ = stream.read(&mut [0; 1]);
        } else {
            stream.write_all(answer.as_bytes()).expect("an answer");
        }
    });
    address
}

#[test]
fn a_living_worker_is_a_yes() {
    let place = Place::new();
    let address = port("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n").to_string();
    let ended = place.run(&["health", "--address", &address]);
    assert_eq!((ended.code, ended.out.as_str()), (0, "ok\n"));
    let url = format!("http://{}", port("HTTP/1.1 200 OK\r\n\r\nok\n"));
    let answer = place.json(&["health", "--url", &url]);
    assert_eq!(
        (&answer["alive"], &answer["status"]),
        (&true.into(), &200.into())
    );
}

#[test]
fn a_hung_worker_is_a_failure_with_its_reason() {
    let place = Place::new();
    let address = port("HTTP/1.1 503 Service Unavailable\r\n\r\nthe loop hangs\n").to_string();
    let ended = place.run(&["health", "--address", &address]);
    assert_eq!((ended.code, ended.out.as_str()), (1, "the loop hangs\n"));
}

#[test]
fn no_answer_and_nonsense_are_failures() {
    let place = Place::new();
    let silent = port("").to_string();
    let talk = place.refused(1, &["health", "--address", &silent, "--timeout", "100ms"]);
    assert!(talk.contains("no answer within 100ms"), "{talk}");
    let nonsense = port("SSH-2.0-OpenSSH\r\n\r\n").to_string();
    place.refused(1, &["health", "--address", &nonsense]);
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
    let closed = closed.expect("an address").to_string();
    place.refused(1, &["health", "--address", &closed]);
}

#[test]
fn a_place_that_cannot_be_asked_is_a_usage_error() {
    let place = Place::new();
    place.refused(2, &["health"]);
    place.refused(2, &["health", "--url", "https://127.0.0.1:1/healthz"]);
    place.refused(2, &["health", "--address", "127.0.0.1"]);
    place.refused(
        2,
        &["health", "--address", "127.0.0.1:1", "--timeout", "0s"],
    );
}

#[test]
fn the_port_of_the_settings_is_asked_if_none_is_named() {
    let place = Place::new();
    let alive = "HTTP/1.1 200 OK\r\n\r\nok\n";
    let write = |address: SocketAddr| {
        place.file(
            "etc/leasehold.toml",
            format!("[worker]\nhealth = \"{address}\"\n"),
        );
    };
    let ask = ["health", "--config", "etc/leasehold.toml"];
    write(port(alive));
    assert_eq!(place.run(&ask).code, 0);
    // Whoever listens everywhere is asked here.
    let everywhere = SocketAddr::from(([0, 0, 0, 0], port(alive).port()));
    write(everywhere);
    assert_eq!(place.run(&ask).code, 0);
    // As the worker takes it: the variable stands over the file.
    let output = place
        .command(&ask)
        .env("LEASEHOLD_HEALTH", port(alive).to_string())
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(0));
    let named = port("HTTP/1.1 503 Service Unavailable\r\n\r\nhung\n").to_string();
    let ended = place.run(&[ask.as_slice(), &["--address", &named]].concat());
    assert_eq!((ended.code, ended.out.as_str()), (1, "hung\n"));
    write(SocketAddr::from(([127, 0, 0, 1], 0)));
    let talk = place.refused(2, &ask);
    assert!(talk.contains("picks a free port"), "{talk}");
    place.file("etc/leasehold.toml", "");
    let talk = place.refused(2, &ask);
    assert!(talk.contains("worker.health is not set"), "{talk}");
}
