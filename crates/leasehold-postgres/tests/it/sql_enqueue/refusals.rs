//! What is refused, and in what words.

use super::{TRACE, code, enqueue, enqueue_many, words};
use crate::harness::OneSchema;

/// Arguments, the one that is at fault, and words of the refusal.
const REFUSALS: [(&str, &str, &str); 24] = [
    (
        "null, '{}'",
        "kind",
        "the kind is missing; say what to do, such as SEND_INVOICE",
    ),
    (
        "'send', '{}'",
        "kind",
        "kind \"send\" is not valid: use 1 to 64 bytes of A-Z",
    ),
    ("'', '{}'", "kind", "kind \"\" is not valid"),
    ("E'SEND\\n', '{}'", "kind", "kind \"SEND\\n\" is not valid"),
    ("'SENDÉ', '{}'", "kind", "is not valid"),
    (
        "'SEND', null",
        "payload",
        "a JSON object is needed, such as {\"id\": 7}, not null",
    ),
    ("'SEND', 'null'", "payload", "not null"),
    ("'SEND', '[1]'", "payload", "not a list"),
    ("'SEND', '\"a\"'", "payload", "not a text"),
    ("'SEND', '1'", "payload", "not a number"),
    ("'SEND', 'true'", "payload", "not a truth value"),
    (
        "'SEND', '{}', org => '00000000-0000-0000-0000-000000000000'",
        "org",
        "the platform owns no work",
    ),
    (
        "'SEND', '{}', lane => ''",
        "lane",
        "lane \"\" is not valid: use 1 to 100 bytes of a-z",
    ),
    (
        "'SEND', '{}', lane => 'a b'",
        "lane",
        "lane \"a b\" is not valid",
    ),
    (
        "'SEND', '{}', priority => 32768",
        "priority",
        "priority is 32768; allow between -32768 and 32767",
    ),
    (
        "'SEND', '{}', max_attempts => 0",
        "max_attempts",
        "max_attempts is 0; allow between 1 and 1000000",
    ),
    (
        "'SEND', '{}', max_attempts => 1000001",
        "max_attempts",
        "allow between 1 and 1000000",
    ),
    (
        "'SEND', '{}', delay => interval '-1 second'",
        "delay",
        "give none for an item that is due at once",
    ),
    (
        "'SEND', '{}', delay => '1 hour', due_at => now()",
        "delay",
        "delay and due_at are both given",
    ),
    (
        "'SEND', '{}', due_at => 'infinity'",
        "due_at",
        "due_at is infinity; give an instant",
    ),
    (
        "'SEND', '{}', due_at => '-infinity'",
        "due_at",
        "give an instant",
    ),
    (
        "'SEND', '{}', key_text => ''",
        "key_text",
        "key_text is empty, as a missing value is",
    ),
    (
        "'SEND', '{}', key => gen_random_uuid(), key_text => 'x'",
        "key",
        "key and key_text are both given",
    ),
    (
        "'SEND', '{}', traceparent => '00-ab-cd-01'",
        "traceparent",
        "\"00-ab-cd-01\" is no W3C header",
    ),
];

#[tokio::test]
async fn what_breaks_a_rule_is_refused_with_what_to_do() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let long = "x".repeat(1_001);
    let made = [
        (
            &*format!("'{}', '{{}}'", "K".repeat(65)),
            "kind",
            "is not valid",
        ),
        (
            &*format!("'SEND', '{{}}', lane => '{}'", "l".repeat(101)),
            "lane",
            "is not valid",
        ),
        (
            &*format!("'SEND', '{{}}', key_text => '{long}'"),
            "key_text",
            "1001 bytes, and the limit is 1000 bytes",
        ),
        (
            &*format!("'SEND', '{{}}', traceparent => '{}'", TRACE.to_uppercase()),
            "traceparent",
            "is no W3C header",
        ),
    ];
    let cases = REFUSALS.into_iter().chain(made);
    for (arguments, argument, expected) in cases {
        let error = enqueue(&schema, &schema.outsider, arguments)
            .await
            .expect_err(arguments);
        let told = error.as_db_error().unwrap();
        assert_eq!(code(&error), "22023", "{arguments}: {told}");
        assert_eq!(told.column(), Some(argument), "{arguments}: {told}");
        assert!(told.message().contains(expected), "{arguments}: {told}");
    }
    let count = format!("select count(*) from {}.items", schema.schema);
    let row = schema.outsider.query_one(&count, &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_batch_with_a_bad_item_is_refused_whole_and_names_it() {
    let Some(schema) = OneSchema::new().await else {
        return;
    };
    let good = r#"{"kind":"SEND","payload":{"id":1}}"#;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let cases = [
        (
            r#"{"kind":"send","payload":{}}"#,
            "kind \"send\" is not valid",
        ),
        (r#"{"kind":"SEND"}"#, "a JSON object is needed"),
        (
            r#"{"kind":"SEND","payload":{},"prio":1}"#,
            "an item has no \"prio\"; it has kind, payload, lane",
        ),
        (
            r#"{"kind":"SEND","payload":{},"place":1}"#,
            "an item has no \"place\"",
        ),
        (
            r#"{"kind":"SEND","payload":{},"priority":"high"}"#,
            "invalid input syntax for type integer: \"high\"",
        ),
        (
            r#"{"kind":"SEND","payload":{},"id":"7"}"#,
            "invalid input syntax for type uuid: \"7\"",
        ),
        (
            r#"{"kind":"SEND","payload":{},"kind":"B"}"#,
            "a key stands twice in one object; it is $.kind",
        ),
        (
            r#"{"kind":"SEND","payload":{"a":[{"b":1,"\u0062":2}]}}"#,
            "it is $.payload.a[0].b",
        ),
        (
            r#"{"kind":"SEND","payload":{"a":"\u0000"}}"#,
            "it is in $.payload.a",
        ),
        ("7", "a JSON object is needed, such as {\"kind\""),
        (
            &*format!(r#"{{"kind":"SEND","payload":{{"a":{deep}}}}}"#),
            "nested more than 127 deep",
        ),
    ];
    for (bad, expected) in cases {
        let error = enqueue_many(&schema, &format!("[{good},{bad},{good}]"))
            .await
            .expect_err(bad);
        assert_eq!(code(&error), "22023", "{bad}: {error:?}");
        let told = words(&error);
        assert!(told.contains(expected), "{bad}: {told}");
        assert!(told.starts_with("item 1 of the batch (from 0): "), "{told}");
        assert!(
            told.ends_with("; nothing of the batch was stored"),
            "{told}"
        );
    }
    for (batch, expected) in [
        ("{}", "a JSON list of objects is needed"),
        ("null", "a JSON list of objects is needed"),
        (
            &*format!("[{}]", vec![good; 1_001].join(",")),
            "there are 1001, and the limit is 1000",
        ),
    ] {
        let error = enqueue_many(&schema, batch).await.expect_err(expected);
        assert!(words(&error).contains(expected), "{}", words(&error));
    }
    assert_eq!(enqueue_many(&schema, "[]").await.unwrap(), []);
    let full = format!("[{}]", vec![good; 1_000].join(","));
    let fates = enqueue_many(&schema, &full).await.unwrap();
    assert!(fates.iter().all(|fate| fate.2 == "inserted"));
    assert!(fates.is_sorted(), "places and fresh ids rise");
}
