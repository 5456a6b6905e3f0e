use super::*;

fn read(body: &str) -> Result<Envelope, Malformed> {
    Envelope::parse(body, TOKEN_FIELD)
}

#[test]
fn a_request_is_kept_byte_for_byte() {
    let body = " {\"task_token\": \"tok\", \"n\": 12345678901234567890.00, \"t\": \"\\u0000\"}\n";
    let envelope = read(body).unwrap();
    assert_eq!(envelope.token.expose(), "tok");
    assert_eq!(envelope.request.as_str(), body);
}

/// SOURCE-4: which bodies are refused, and of which a token can be read all the same.
#[test]
fn what_is_no_request_is_refused_and_its_token_read_where_there_is_one() {
    let long = format!("{{\"task_token\": \"{}\"}}", "t".repeat(2_049));
    let random: String = (0..262_144_u32)
        .map(|n| char::from(b' ' + u8::try_from(n * 7 % 90).unwrap()))
        .collect();
    let bodies: [(&str, Option<&str>); 14] = [
        ("", None),
        ("plain text", None),
        ("[1, 2]", None),
        ("null", None),
        ("\"text\"", None),
        ("{\"task_token\": 7}", None),
        ("{\"task_token\": \"\"}", None),
        ("{\"task_token\": \"  \"}", None),
        ("{\"other\": \"x\", \"other\": \"y\"}", None),
        ("{\"task_token\": \"a\", \"task_token\": \"b\"}", None),
        ("{\"task_token\": \"tok\", \"a\": 1, \"a\": 2}", Some("tok")),
        ("{\"task_token\": \"tok\"} and more", None),
        (&long, None),
        (&random, None),
    ];
    for (body, token) in bodies {
        let refused = read(body).expect_err(body);
        assert_eq!(
            refused.token.as_ref().map(TaskToken::expose),
            token,
            "{body}"
        );
        assert!(!refused.reason.is_empty());
    }
}

/// OPS-2: neither a token nor a body is in what is shown of them.
#[test]
fn nothing_shows_a_token_or_a_value() {
    let body = "{\"task_token\": \"AQCsecret7\", \"password\": \"hunter2 ü\"}";
    let envelope = read(body).unwrap();
    let shown = format!("{envelope:?} {} {:?}", envelope.token, envelope.token);
    assert!(
        !shown.contains("secret") && !shown.contains("hunter"),
        "{shown}"
    );
    assert_eq!(
        shape(body),
        "{\"xxxx_xxxxx\": \"xxxxxxxxx0\", \"xxxxxxxx\": \"xxxxxx0 x\"}"
    );
    let error = read("{\"task_token\": hunter2}").unwrap_err();
    assert!(!error.reason.contains("hunter"), "{}", error.reason);
    assert_eq!(shape(&"x".repeat(500)).chars().count(), 121);
}
