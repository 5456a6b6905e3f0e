//! Where to ask, and how an answer is read.

use super::*;

fn place(authority: &str, path: &str) -> Place {
    Place {
        authority: authority.to_owned(),
        path: path.to_owned(),
    }
}

#[test]
fn urls_are_read() {
    for (url, expected) in [
        ("http://h:9400/healthz", place("h:9400", "/healthz")),
        ("http://h:9400", place("h:9400", "/healthz")),
        ("http://h:9400/", place("h:9400", "/healthz")),
        ("http://h/other", place("h:80", "/other")),
        ("http://[::1]:9400", place("[::1]:9400", "/healthz")),
    ] {
        assert_eq!(Place::of_url(url), Ok(expected), "{url}");
    }
    for url in [
        "https://h:9400",
        "h:9400",
        "http://a@h:1/",
        "http://h:1/a b",
    ] {
        assert!(Place::of_url(url).is_err(), "{url}");
    }
}

#[test]
fn an_address_needs_its_port() {
    assert!(Place::of_address("127.0.0.1:9400").is_ok());
    for address in ["127.0.0.1", ":9400", "h:port", "h:9400/healthz", ""] {
        assert!(Place::of_address(address).is_err(), "{address}");
    }
}

#[test]
fn an_answer_is_a_status_and_a_body() {
    assert_eq!(
        read_answer("HTTP/1.1 503 Service Unavailable\r\nA: b\r\n\r\nhung\n"),
        Some((503, "hung\n".to_owned()))
    );
    for text in [
        "",
        "SSH-2.0-x\r\n\r\n",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 x\r\n\r\n",
    ] {
        assert_eq!(read_answer(text), None, "{text:?}");
    }
}
