//! The rules for payloads are those of `JsonObject`: what it takes is stored as it was written, and what it
//! refuses is refused.

use leasehold_core::{JsonError, JsonObject, OrgId};

use super::{code, enqueue_many, stored, words};
use crate::harness::OneSchema;

/// Texts that Postgres takes for JSON, at either side of every rule.
fn texts() -> Vec<String> {
    let nested = |depth: usize| {
        let inner = depth - 1;
        format!("{{\"a\":{}{}}}", "[".repeat(inner), "]".repeat(inner))
    };
    let filled = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    let digits = |count: usize| format!("{{\"a\":{}}}", "9".repeat(count));
    let plain = [
        "{}",
        r#"{"a":"\u0000"}"#,
        r#"{"a\u0000":1}"#,
        r#"{"a":["b",{"c":["\u0000"]}]}"#,
        r#"{"a":"\\u0000"}"#,
        r#"{"\\u0000":["\\u0000",{"\\\\u0000":"\u00e9"}]}"#,
        r#"{"a":"\\\u0000"}"#,
        r#"{"a":"\\\\u0000"}"#,
        r#"{"a":"u0000","b":"\"u0000","c":"0000"}"#,
        r#"{"a":"\ud800"}"#,
        r#"{"a":"\udc00"}"#,
        r#"{"a":"\ud800\ud800"}"#,
        r#"{"a":"\ud800x"}"#,
        r#"{"\ud800":1}"#,
        r#"{"a":"\ud83d\ude00","b":"\\ud800"}"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"c":2,"b":1}}"#,
        r#"{"a":[{"b":1},{"b":1},{"b":1,"b":1}]}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"a":1,"A":2,"a ":3}"#,
        r#"{"a":":","b":"\":","c":{"a":":"}}"#,
        r#"{"a:":1,"a":2,":":"{[,]}"}"#,
        r#"{"":1}"#,
        r#"{"":1,"":2}"#,
        r#"{"a":1e308,"b":-1e308,"c":1e-400,"d":0e999,"e":1E+2}"#,
        r#"{"a":1e309}"#,
        r#"{"a":[-1e309]}"#,
        r#"{"a":1.7976931348623157e308}"#,
        r#"{"big":123456789012345678901234567890,"exact":1.50,"minus":-0}"#,
        "{ \"spaced\" :  [ 1 , 2 ],\t\"tab\":\n true }",
        "[]",
        "[{}]",
        "\"a\"",
        "1",
        "null",
        "false",
    ];
    let made = [
        nested(127),
        nested(128),
        format!("{{\"a\":[{}]}}", vec!["[[1]]"; 500].join(",")),
        digits(300),
        digits(309),
        digits(400),
        filled(JsonObject::BYTES_MAX),
        filled(JsonObject::BYTES_MAX + 1),
        format!("  {}\n", filled(JsonObject::BYTES_MAX)),
    ];
    plain.map(str::to_owned).into_iter().chain(made).collect()
}

#[tokio::test]
async fn a_payload_is_taken_or_refused_as_in_rust() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let one = format!(
        "select id from {}.enqueue('SEND', $1::text::json)",
        schema.schema
    );
    for text in texts() {
        let shown: String = text.chars().take(60).collect();
        let expected = JsonObject::parse(&text);
        let alone = schema.outsider.query_one(&one, &[&text]).await;
        let batch = format!(r#"[{{"kind":"SEND","payload":{text}}}]"#);
        let batched = enqueue_many(&schema, &batch).await;
        match expected {
            Ok(object) => {
                let alone = alone.unwrap_or_else(|error| panic!("{shown}: {error:?}"));
                let batched = batched.unwrap_or_else(|error| panic!("{shown}: {error:?}"));
                for id in [alone.get(0), batched[0].1] {
                    let item =
                        stored(&schema, OrgId::SINGLE, leasehold_core::ItemId::new(id)).await;
                    assert_eq!(item.payload.as_str(), object.as_str(), "{shown}");
                }
            }
            Err(error) => {
                let refused = [alone.unwrap_err(), batched.expect_err(&shown)];
                for (at, refusal) in refused.iter().enumerate() {
                    assert_eq!(code(refusal), "22023", "{shown}: {refusal:?}");
                    let (from, to) = [("$", "$"), ("$", "$.payload")][at];
                    match &error {
                        JsonError::DuplicateKey { place } => {
                            let place = place.replacen(from, to, 1);
                            assert!(
                                words(refusal).contains(&format!("it is {place}")),
                                "{shown}: {refusal:?}"
                            );
                        }
                        // A key that cannot be read cannot be told.
                        JsonError::ZeroCharacter { place } if !place.contains("\\u0000") => {
                            let place = place.replacen(from, to, 1);
                            assert!(
                                words(refusal).contains(&format!("in {place}")),
                                "{shown}: {refusal:?}"
                            );
                        }
                        JsonError::ZeroCharacter { .. } => {
                            assert!(
                                words(refusal).contains("the zero character"),
                                "{shown}: {refusal:?}"
                            );
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
