//! What is masked, and what is left as it was written.

use leasehold::JsonObject;

use super::redacted;

fn shown(json: &str, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let object = JsonObject::parse(json).expect("an object");
    redacted(&object, &names).as_str().to_owned()
}

#[test]
fn fields_are_masked_at_any_depth_and_in_any_case() {
    for (json, masked) in [
        (r#"{"password":"a"}"#, r#"{"password":"***"}"#),
        (r#"{"PassWord":7}"#, r#"{"PassWord":"***"}"#),
        (r#"{"pass\u0077ord":"a"}"#, r#"{"password":"***"}"#),
        (
            r#"{"a":{"b":[1,{"token":{"deep":["x"]}}]}}"#,
            r#"{"a":{"b":[1,{"token":"***"}]}}"#,
        ),
        (r#"{"passwords":"a"}"#, r#"{"passwords":"a"}"#),
        (r#"{"a":"password"}"#, r#"{"a":"password"}"#),
        (r#"{"ÜBER":1}"#, r#"{"ÜBER":"***"}"#),
    ] {
        assert_eq!(shown(json, &["password", "TOKEN", "über"]), masked);
    }
}

#[test]
fn what_is_not_masked_keeps_its_numbers_texts_and_order() {
    let json = r#"{ "z": 12345678901234567890.10, "a": [ 1e300, "\u00e9 \"x\"" ], "token": 1 , "e": {}, "l": [] }"#;
    assert_eq!(
        shown(json, &["token"]),
        r#"{"z":12345678901234567890.10,"a":[1e300,"\u00e9 \"x\""],"token":"***","e":{},"l":[]}"#
    );
    assert_eq!(shown(json, &[]), json);
}

#[test]
fn what_cannot_be_taken_apart_is_masked_as_a_whole() {
    let broken = JsonObject::from_stored(r#"{"password": "a", "#);
    let names = ["password".to_owned()];
    assert_eq!(redacted(&broken, &names).as_str(), r#"{"***":"***"}"#);
}
