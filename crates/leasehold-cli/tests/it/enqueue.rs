//! Enqueueing: one item, many, and everything that can be wrong with them.

use crate::harness::Place;

#[test]
fn an_item_is_created_once_for_its_key_and_once_for_its_id() {
    let place = Place::new();
    let first = place.enqueue(&["SEND", r#"{"id": 7}"#, "--key", "invoice-7"]);
    let again = place.run(&["enqueue", "SEND", r#"{"id": 8}"#, "--key", "invoice-7"]);
    assert_eq!((again.code, again.out.trim()), (0, first.as_str()));
    assert!(again.talk.contains("left as it is"), "{}", again.talk);

    let id = "0197c2f4-7d0a-7000-8000-0123456789ab";
    assert_eq!(place.enqueue(&["SEND", "--id", id]), id);
    assert_eq!(
        place.json(&["enqueue", "SEND", "--id", id])["fate"],
        "id_exists"
    );
    assert_eq!(
        place.json(&["enqueue", "SEND", "--key", "invoice-7"])["fate"],
        "key_exists"
    );
    assert_eq!(place.json(&["enqueue", "SEND"])["fate"], "inserted");
    assert_eq!(place.count(), 3);
}

#[test]
fn an_item_that_is_there_is_told_apart_from_the_one_that_was_sent() {
    let place = Place::new();
    place.enqueue(&["SEND", r#"{"card": "40 00"}"#, "--key", "k"]);
    for (kind, payload, told) in [
        ("SEND", r#"{ "card":"40 00" }"#, None),
        ("SEND", r#"{"card": "4000"}"#, Some("its payload differs")),
        ("BILL", r#"{"card": "40 00"}"#, Some("its kind differs")),
        ("BILL", "{}", Some("its kind and its payload differ")),
    ] {
        let ended = place.run(&["enqueue", kind, payload, "--key", "k"]);
        assert_eq!(ended.code, 0, "{}", ended.talk);
        match told {
            Some(told) => assert!(ended.talk.contains(told), "{}", ended.talk),
            None => assert!(!ended.talk.contains("differ"), "{}", ended.talk),
        }
        assert!(!ended.talk.contains("40"), "{}", ended.talk);
    }
}

#[test]
fn an_empty_key_is_refused_wherever_it_comes_from() {
    let place = Place::new();
    for key in ["", " \t"] {
        let talk = place.refused(2, &["enqueue", "SEND", "--key", key]);
        assert!(talk.contains("leave --key out"), "{talk}");
    }
    let output = place
        .command(&["enqueue", "SEND"])
        .env("LEASEHOLD_ENQUEUE_KEY", "")
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(2));
    assert!(!place.path().join("leasehold.db").exists());
}

#[test]
fn a_bad_id_of_ones_own_is_met_with_what_would_do() {
    let talk = Place::new().refused(2, &["enqueue", "SEND", "--id", "xyz"]);
    assert!(talk.contains("--id \"xyz\" is no UUID"), "{talk}");
    assert!(
        talk.contains("a UUID (version 7) of your own, or leave --id out"),
        "{talk}"
    );
}

#[test]
fn a_forgotten_at_sign_and_one_without_a_name_are_seen() {
    let place = Place::new();
    place.file("payload.json", "{}");
    let talk = place.refused(2, &["enqueue", "SEND", "payload.json"]);
    assert!(talk.contains("try: write @payload.json"), "{talk}");
    let talk = place.refused(2, &["enqueue", "SEND", "nowhere.json"]);
    assert!(!talk.contains("nowhere.json"), "{talk}");
    let talk = place.refused(2, &["enqueue", "SEND", "@"]);
    assert!(talk.contains("no file name follows the @"), "{talk}");
}

#[test]
fn options_reach_the_item() {
    let place = Place::new();
    let answer = place.json(&[
        "enqueue",
        "SEND",
        "{}",
        "--in",
        "1h30m",
        "--queue",
        "slow",
        "--priority",
        "-5",
        "--max-attempts",
        "9",
    ]);
    let item = &answer["item"];
    assert_eq!(item["lane"], "slow");
    assert_eq!(item["priority"], -5);
    assert_eq!(item["max_attempts"], 9);
    let at = |field: &str| -> jiff::Timestamp {
        item[field]
            .as_str()
            .and_then(|text| text.parse().ok())
            .expect(field)
    };
    let ahead = at("available_at").duration_since(at("updated_at"));
    assert_eq!(ahead.as_secs(), 5_400);

    let answer = place.json(&["enqueue", "SEND", "--at", "2099-01-31T10:00:00+01:00"]);
    assert_eq!(answer["item"]["available_at"], "2099-01-31T09:00:00Z");
}

#[test]
fn payloads_come_from_the_argument_a_file_or_the_input() {
    let place = Place::new();
    place.file("payload.json", "\n{\"from\": \"file\"}\n");
    let ids = [
        place.enqueue(&["SEND", r#"{"from":"argument","n":12345678901234567890.10}"#]),
        place.enqueue(&["SEND", "@payload.json"]),
        place
            .run_with(&["enqueue", "SEND", "-"], r#"{"from":"input"}"#)
            .out
            .trim()
            .to_owned(),
        place.enqueue(&["SEND"]),
    ];
    let payload = |id: &String| {
        let shown = place.run(&["items", "show", id, "--payload"]).out;
        let line = shown.lines().find(|line| line.starts_with("payload\t"));
        line.expect("a payload")["payload\t".len()..].to_owned()
    };
    assert_eq!(
        payload(&ids[0]),
        r#"{"from":"argument","n":12345678901234567890.10}"#
    );
    assert_eq!(payload(&ids[1]), r#"{"from": "file"}"#);
    assert_eq!(payload(&ids[2]), r#"{"from":"input"}"#);
    assert_eq!(payload(&ids[3]), "{}");
}

#[test]
fn names_that_break_their_rule_are_refused_with_one_that_keeps_it() {
    let place = Place::new();
    let talk = place.refused(2, &["enqueue", "send-mail", "{}"]);
    assert!(talk.contains("try: write SEND_MAIL"), "{talk}");
    let talk = place.refused(2, &["enqueue", "SEND", "{}", "--lane", "very slow"]);
    assert!(talk.contains("try: write very-slow"), "{talk}");
    place.refused(2, &["enqueue", "7", "{}"]);
    place.refused(2, &["enqueue", "SEND", "{}", "--id", "7"]);
    assert!(
        !place.path().join("leasehold.db").exists(),
        "a refusal creates nothing"
    );
}

#[test]
fn times_that_cannot_be_read_are_refused() {
    let place = Place::new();
    for (flag, text) in [
        ("--in", "5x"),
        ("--in", "-5m"),
        ("--in", "1y"),
        ("--at", "tomorrow"),
        ("--at", "2027-01-31T09:00:00"),
    ] {
        let talk = place.refused(2, &["enqueue", "SEND", "{}", flag, text]);
        assert!(talk.contains(flag) && talk.contains(text), "{talk}");
    }
    let ended = place.run(&[
        "enqueue",
        "SEND",
        "--in",
        "5m",
        "--at",
        "2027-01-31T09:00:00Z",
    ]);
    assert_eq!(ended.code, 2, "{}", ended.talk);
}

#[test]
fn payloads_are_refused_with_the_place_and_without_their_text() {
    let place = Place::new();
    for (payload, at) in [
        (r#"{"card": "4000-1234", }"#, "line 1 column"),
        ("{\"card\":\n \"4000-1234\"", "line 2 column"),
        (r#"["4000-1234"]"#, "not a list"),
        (r#""4000-1234""#, "not a text"),
        (r#"{"card": ["4000-1234", "a\u0000b"]}"#, "$.card[1]"),
        (r#"{"a\u0000b": "4000-1234"}"#, "$.a\\u0000b"),
        (r#"{"card": "4000-1234", "a": "\ud800"}"#, "line 1 column"),
    ] {
        let talk = place.refused(2, &["enqueue", "SEND", payload]);
        assert!(talk.contains(at), "{payload}: {talk}");
        assert!(!talk.contains("4000"), "{talk}");
    }
    place.refused(2, &["enqueue", "SEND", "@nowhere.json"]);
    place.refused(2, &["enqueue", "SEND", "@."]);
    let large = format!("{{\"a\": \"{}\"}}", "x".repeat(1 << 20));
    place.file("large.json", &large);
    let talk = place.refused(2, &["enqueue", "SEND", "@large.json"]);
    assert!(talk.contains("1048576"), "{talk}");
    let talk = place
        .run_with(&["enqueue", "SEND", "-"], b"{\"a\": \"\xff\"}")
        .expect_refusal(2);
    assert!(talk.contains("offset 7"), "{talk}");
}

#[test]
fn a_refused_payload_is_met_with_what_mends_it() {
    let place = Place::new();
    for (payload, remedy) in [
        // What a shell leaves of an object that was not quoted for it.
        ("{id: 7}", "quote it for the shell"),
        ("hello", "quote it for the shell"),
        (r#"{"id": 7, "id": 8}"#, "leave one of them out"),
        (r#"{"a": "b\u0000"}"#, "take the character out"),
        ("[7]", "wrap it in an object"),
        (r#"{"id": 7,}"#, "correct it at that place"),
        (r#"{"id": "\ud800"}"#, "correct it at that place"),
    ] {
        let talk = place.refused(2, &["enqueue", "SEND", payload]);
        assert!(
            talk.contains(&format!("try: {remedy}")),
            "{payload}: {talk}"
        );
    }
    let twice = "{\"id\": 7, \"id\": 8}\n";
    place.file("twice.json", twice);
    for arguments in [["@twice.json"].as_slice(), &["--batch", "twice.json"]] {
        let talk = place.refused(2, &[&["enqueue", "SEND"], arguments].concat());
        assert!(talk.contains("try: leave one of them out"), "{talk}");
    }
}

#[test]
fn harmless_text_survives_unchanged() {
    let place = Place::new();
    let payload = r#"{"a": "\\u0000 Grüße 世界", "b": 1e300}"#;
    let id = place.enqueue(&["SEND", payload]);
    let shown = place.run(&["items", "show", &id, "--payload"]).out;
    assert!(shown.contains(payload), "{shown}");
}

#[test]
fn a_batch_is_stored_in_the_order_of_its_lines() {
    let place = Place::new();
    place.file("batch.jsonl", "{\"n\": 1}\r\n\n{\"n\": 2}\n{\"n\": 3}");
    let ended = place.run(&[
        "enqueue",
        "SEND",
        "--batch",
        "batch.jsonl",
        "--lane",
        "slow",
    ]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let ids: Vec<&str> = ended.out.lines().collect();
    assert_eq!(ids.len(), 3);
    let listed = place.json(&["items", "list", "--lane", "slow"]);
    let listed: Vec<&str> = listed["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|item| item["id"].as_str())
        .collect();
    assert!(ids.iter().rev().eq(listed.iter()), "{ids:?} {listed:?}");

    let ended = place.run_with(&["enqueue", "SEND", "--batch", "-", "--json"], "{}\n{}\n");
    let answer: serde_json::Value = serde_json::from_str(&ended.out).expect("an object");
    assert_eq!(answer["inserted"], 2);
}

#[test]
fn a_batch_with_one_bad_line_stores_nothing() {
    let place = Place::new();
    place.enqueue(&["SEND"]);
    let mut lines: Vec<String> = (0..100).map(|n| format!("{{\"n\": {n}}}")).collect();
    for (bad, at) in [
        (r#"{"secret": "hush" "#, "line 43"),
        (r#"["hush"]"#, "a JSON object is needed"),
        (r#"{"list": [{"k": "hush\u0000"}]}"#, "$.list[0].k"),
    ] {
        bad.clone_into(&mut lines[42]);
        let ended = place.run_with(&["enqueue", "SEND", "--batch", "-"], lines.join("\n"));
        let talk = ended.expect_refusal(2);
        assert!(talk.contains("line 43 of standard input"), "{talk}");
        assert!(talk.contains(at) && !talk.contains("hush"), "{talk}");
    }
    assert_eq!(place.count(), 1);
    place
        .run_with(&["enqueue", "SEND", "--batch", "-"], "\n \n")
        .expect_refusal(2);
    place
        .run_with(&["enqueue", "SEND", "--batch", "-"], "{}\n".repeat(10_001))
        .expect_refusal(2);
    for flag in [
        ["--key", "k"],
        ["--id", "0197c2f4-7d0a-7000-8000-0123456789ab"],
    ] {
        let ended = place.run(&[&["enqueue", "SEND", "--batch", "-"], &flag[..]].concat());
        assert_eq!(ended.code, 2, "{}", ended.talk);
    }
}

#[test]
fn a_payload_larger_than_its_command_is_handed_is_refused_before_it_is_stored() {
    let place = Place::new();
    place.file(
        "leasehold.toml",
        "[kinds.SEND]\ncommand = [\"true\"]\n[kinds.LOAD]\ncommand = [\"true\"]\n\
         request = \"stdin\"\n",
    );
    let of = |bytes: usize| format!("{{\"a\":\"{}\"}}", "x".repeat(bytes - 8));
    place.file("fits.json", of(131_056));
    place.file("large.json", of(131_057));
    place.file("rows.jsonl", format!("{{}}\n\n{}\n", of(131_057)));
    for (arguments, where_it_is) in [
        (["SEND", "@large.json"].as_slice(), "the payload"),
        (&["SEND", "--batch", "rows.jsonl"], "line 3 of rows.jsonl"),
    ] {
        let talk = place.refused(2, &[&["enqueue"], arguments].concat());
        for words in [
            where_it_is,
            "131057",
            "131056",
            "request = \"stdin\"",
            "[kinds.SEND]",
        ] {
            assert!(talk.contains(words), "{words}: {talk}");
        }
    }
    assert!(!place.path().join("leasehold.db").exists());
    place.enqueue(&["SEND", "@fits.json"]);
    place.enqueue(&["LOAD", "@large.json"]);
    // Nobody here knows how another kind is run.
    place.enqueue(&["OTHER", "@large.json"]);
}
