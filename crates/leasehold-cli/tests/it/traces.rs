//! Traces reach the collector that the environment names, and a collector that is away costs nothing.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use crate::harness::{Place, ended};

const PATIENCE: Duration = Duration::from_secs(30);
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// A collector: the path and the body of each request.
fn collector() -> (SocketAddr, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let (tell, told) = sync_channel(8);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a caller"));
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head).expect("a head") == 0 {
                    break;
                }
            }
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1).expect("a length");
            let length = length.lines().next().expect("a length").trim();
            let mut body = vec![0; length.parse().expect("a number")];
            stream.read_exact(&mut body).expect("a body");
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.get_mut().write_all(answer).expect("a reader");
            let path = head.split(' ').nth(1).expect("a path").to_owned();
            if tell.send((path, body)).is_err() {
                return;
            }
        }
    });
    (address, told)
}

fn holds(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn spans_of_producer_and_worker_reach_the_collector_under_one_link() {
    let place = Place::new();
    let (address, told) = collector();
    let endpoint = format!("http://{address}");
    let mut enqueue = place.command(&["enqueue", "HELLO"]);
    let sent = ended(&enqueue.env(ENDPOINT, &endpoint).output().expect("a run"));
    assert_eq!(sent.code, 0, "{}", sent.talk);
    let (path, producer) = told.recv_timeout(PATIENCE).expect("the producer's span");
    assert_eq!(path, "/v1/traces");
    assert!(holds(&producer, b"send default"));

    let item = place.json(&["items", "show", sent.out.trim(), "--payload"]);
    let header = item["item"]["traceparent"].as_str().expect("a header");
    let trace = header.split('-').nth(1).expect("a trace");
    let trace: Vec<u8> = (0..trace.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&trace[at..at + 2], 16).expect("hexadecimal"))
        .collect();
    assert!(
        holds(&producer, &trace),
        "the item names its producer's trace"
    );

    let script = "echo \"{\\\"header\\\": \\\"$TRACEPARENT\\\"}\"";
    let words = [
        "run",
        "HELLO",
        "--until-empty",
        "--",
        "/bin/sh",
        "-c",
        script,
    ];
    let mut run = place.command(&words);
    let ran = ended(&run.env(ENDPOINT, &endpoint).output().expect("a run"));
    assert_eq!(ran.code, 0, "{}", ran.talk);
    let (_, consumer) = told.recv_timeout(PATIENCE).expect("the run's span");
    assert!(holds(&consumer, b"process default HELLO"));
    assert!(holds(&consumer, &trace), "the run is linked to its cause");
    // The command is told of its own run's span, which is another trace.
    let item = place.json(&["items", "show", sent.out.trim(), "--payload"]);
    let of_the_run = item["item"]["result"]["header"].as_str().expect("a header");
    assert_ne!(of_the_run, header);
    assert_eq!(of_the_run.len(), header.len());
}

#[test]
fn a_collector_that_is_away_costs_the_spans_and_no_work() {
    let place = Place::new();
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("its address");
    drop(nobody);
    let mut enqueue = place.command(&["enqueue", "HELLO"]);
    enqueue.env(ENDPOINT, format!("http://{address}"));
    let sent = ended(&enqueue.output().expect("a run"));
    assert_eq!(sent.code, 0, "{}", sent.talk);
    assert_eq!(place.count(), 1);
}

#[test]
fn an_address_that_is_none_is_refused_by_the_name_of_its_variable() {
    let place = Place::new();
    let mut enqueue = place.command(&["enqueue", "HELLO"]);
    enqueue.env(ENDPOINT, "not a url");
    let refused = ended(&enqueue.output().expect("a run"));
    assert_eq!(refused.code, 2, "{}", refused.talk);
    assert!(refused.talk.contains(ENDPOINT), "{}", refused.talk);
    assert!(!place.path().join("leasehold.db").exists());
}
