use super::*;

fn secrets(payload: &str, fields: &[&str]) -> Secrets {
    Redaction::new(fields).secrets(&JsonObject::parse(payload).unwrap())
}

#[test]
fn values_of_secret_fields_are_masked_at_any_depth_and_in_any_case() {
    let payload =
        r#"{"user":"ann","Password":"hunter22","deep":[{"token":{"a":["tok-123",98765]}}]}"#;
    let secrets = secrets(payload, &["password", "TOKEN"]);
    assert_eq!(
        secrets.mask("ann said hunter22, tok-123 and 98765"),
        "ann said ***, *** and ***"
    );
}

#[test]
fn a_value_that_holds_another_is_masked_as_a_whole() {
    let secrets = secrets(r#"{"a":"secret","b":"secret-and-more"}"#, &["a", "b"]);
    assert_eq!(secrets.mask("secret-and-more secret"), "*** ***");
}

#[test]
fn short_values_and_other_fields_are_left_alone() {
    let secrets = secrets(r#"{"password":"abc","name":"long enough"}"#, &["password"]);
    assert_eq!(secrets.mask("abc long enough"), "abc long enough");
}

#[test]
fn passwords_in_addresses_are_masked_without_being_asked() {
    let none = secrets("{}", &[]);
    for (text, masked) in [
        (
            "connect to postgres://app:p@ss:w0rd@db.local:5432/jobs failed",
            "connect to postgres://app:***@db.local:5432/jobs failed",
        ),
        (
            "amqp://u:p@h and https://v:q@i/x",
            "amqp://u:***@h and https://v:***@i/x",
        ),
        ("https://ann@example.org/x", "https://ann@example.org/x"),
        ("https://example.org/a:b@c", "https://example.org/a:b@c"),
        ("https://user:@host", "https://user:@host"),
        ("://", "://"),
        ("", ""),
    ] {
        assert_eq!(none.mask(text), masked);
    }
}

#[test]
fn debug_shows_no_secret() {
    let shown = format!("{:?}", secrets(r#"{"password":"hunter22"}"#, &["password"]));
    assert!(!shown.contains("hunter22"), "{shown}");
}
