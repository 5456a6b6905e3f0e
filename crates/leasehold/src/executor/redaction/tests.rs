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

#[test]
fn a_secret_is_masked_however_it_is_written() {
    let payload =
        r#"{"p":"hun\"t\u00e4r","n":12345678901234567890123,"f":1.50e3,"c":"a\u0001bcd"}"#;
    let secrets = secrets(payload, &["p", "n", "f", "c"]);
    for said in [
        "hun\"t\u{e4}r",
        r#"hun\"t\u00e4r"#,
        "hun\\\"t\u{e4}r",
        "12345678901234567890123",
        "1.50e3",
        "a\\u{1}bcd",
    ] {
        assert_eq!(secrets.mask(&format!("<{said}>")), "<***>", "{said}");
    }
}

#[test]
fn each_line_of_a_secret_is_one() {
    let secrets = secrets(r#"{"key":"first-line\n  second-line\r\nend"}"#, &["key"]);
    assert_eq!(secrets.mask("got second-line"), "got ***");
    assert_eq!(secrets.mask("the end"), "the end");
    assert_eq!(
        secrets.mask("first-line\n  second-line\nend"),
        "***\n  ***\nend"
    );
}

#[test]
fn the_beginning_of_a_secret_is_masked_where_a_text_breaks_off() {
    let secrets = secrets(r#"{"password":"correct-horse"}"#, &["password"]);
    for (text, masked) in [
        ("it was correct-h…", "it was ***…"),
        (
            "it was corr [… 17 bytes left out …]",
            "it was *** [… 17 bytes left out …]",
        ),
        ("it was cor…", "it was cor…"),
        ("it was correct-h", "it was correct-h"),
        ("at redis://:pass…", "at redis://:***…"),
        ("at http://host:8080…", "at http://host:8080…"),
        ("a … b", "a … b"),
    ] {
        assert_eq!(secrets.mask(text), masked);
    }
    assert_eq!(secrets.mask_cut("it was correct-h"), "it was ***");
    assert_eq!(secrets.mask_cut("all is well"), "all is well");
}
