use super::*;

fn refusal(text: &str) -> String {
    JsonObject::parse(text).expect_err("refused").to_string()
}

#[test]
fn an_object_is_kept_byte_for_byte() {
    let text = r#"{"big": 123456789012345678901234567890, "b":1,  "a":[1.50,{"x":null}]}"#;
    assert_eq!(
        JsonObject::parse(&format!("\n {text}\t")).unwrap().as_str(),
        text
    );
}

#[test]
fn zero_characters_are_refused_with_their_place() {
    assert!(refusal(r#"{"a":"x\u0000y"}"#).contains("in $.a"));
    assert!(refusal(r#"{"a":[1,{"b":["\u0000"]}]}"#).contains("in $.a[1].b[0]"));
    assert!(refusal(r#"{"k\u0000":1}"#).contains(r"in $.k\u0000"));
}

#[test]
fn unpaired_surrogates_are_refused() {
    assert!(refusal(r#"{"a":"\ud800"}"#).contains("not valid JSON"));
    assert!(refusal(r#"{"a":"\udc00x"}"#).contains("not valid JSON"));
    assert!(JsonObject::parse(r#"{"a":"\ud83d\ude00"}"#).is_ok());
}

#[test]
fn text_that_only_looks_like_the_escape_is_kept() {
    // An escaped backslash followed by the letters u0000 is six harmless characters.
    let text = r#"{"a":"\\u0000"}"#;
    assert_eq!(JsonObject::parse(text).unwrap().as_str(), text);
}

#[test]
fn a_key_that_stands_twice_is_refused_with_its_place() {
    assert!(refusal(r#"{"a":1,"a":2}"#).contains("it is $.a"));
    assert!(refusal(r#"{"l":[{"x":1,"y":2,"x":3}]}"#).contains("it is $.l[0].x"));
    // An escape may spell the same key another way.
    assert!(refusal(r#"{"a":1,"\u0061":2}"#).contains("it is $.a"));
    assert!(JsonObject::parse(r#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
}

#[test]
fn other_shapes_are_refused_by_name() {
    for (text, what) in [
        ("[]", "a list"),
        ("null", "null"),
        ("7", "a number"),
        ("\"x\"", "a text"),
        ("true", "a truth value"),
    ] {
        assert!(refusal(text).contains(what), "{text}");
    }
    for text in ["", "{", "{} {}", "{\"a\":NaN}", "plain"] {
        assert!(refusal(text).contains("not valid JSON"), "{text}");
    }
}

#[test]
fn the_limit_counts_bytes() {
    assert!(JsonObject::parse_within(r#"{"a":"é"}"#, 10).is_ok());
    assert!(matches!(
        JsonObject::parse_within(r#"{"a":"é"}"#, 9),
        Err(JsonError::TooLarge {
            bytes: 10,
            bytes_max: 9
        })
    ));
}

#[test]
fn a_unit_struct_is_refused_with_the_remedy() {
    #[derive(Serialize)]
    struct Tick;
    assert!(matches!(
        JsonObject::encode(&Tick),
        Err(JsonError::NotAnObject("null"))
    ));
}

#[test]
fn payload_text_does_not_show_in_debug_output() {
    let secret = JsonObject::parse(r#"{"password":"hunter2"}"#).unwrap();
    assert!(!format!("{secret:?}").contains("hunter2"));
}
