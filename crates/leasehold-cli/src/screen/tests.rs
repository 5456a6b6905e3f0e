//! What tables, columns and refusals look like.

use super::*;

fn sample() -> Vec<Vec<Field>> {
    vec![
        vec!["a".into(), Field::toned("done", Tone::Good), "first".into()],
        vec![
            "bcd".into(),
            Field::toned("failed", Tone::Bad),
            "second\tand\u{1b}[31m more\n".into(),
        ],
    ]
}

#[test]
fn a_table_has_a_header_and_no_trailing_space() {
    assert_eq!(
        table(&["id", "status", "note"], &sample()),
        "ID   STATUS  NOTE\n\
         a    done    first\n\
         bcd  failed  second and\u{fffd}[31m more\n"
    );
}

#[test]
fn columns_for_pipes_are_bare_and_one_line_each() {
    assert_eq!(
        columns(&sample()),
        "a\tdone\tfirst\nbcd\tfailed\tsecond and\u{fffd}[31m more \n"
    );
}

#[test]
fn text_of_others_cannot_steer_the_terminal() {
    assert_eq!(plain("a\u{1b}]0;x\u{7}b"), "a\u{fffd}]0;x\u{fffd}b");
    assert_eq!(plain("a\u{202e}b"), "a\u{fffd}b");
    assert_eq!(plain("Grüße, 世界"), "Grüße, 世界");
    for c in STEERING {
        assert_eq!(
            plain(&format!("a{c}b")),
            "a\u{fffd}b",
            "{}",
            c.escape_unicode()
        );
    }
}

/// The first and the last of each kind.
const STEERING: [char; 15] = [
    '\u{0}', '\u{1f}', '\u{7f}', '\u{80}', '\u{9b}', '\u{9f}', '\u{200b}', '\u{200f}', '\u{2028}',
    '\u{2029}', '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{feff}',
];

#[test]
fn json_of_others_cannot_either_and_says_the_same() {
    for c in STEERING {
        let value = serde_json::json!({ c.to_string(): [c.to_string(), "Grüße"] });
        let text = plain_json(&serde_json::to_string_pretty(&value).expect("JSON"));
        assert!(!text.contains(|c| c != '\n' && steers(c)), "{text:?}");
        assert!(text.contains("Grüße"), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read, value);
    }
    // Between values there may be what a text would have to escape.
    assert_eq!(plain_json("{\r\n\t\"a\": 1}"), "{ \n\t\"a\": 1}");
}

#[test]
fn a_refusal_says_what_why_and_what_to_do() {
    let failure = Failure::usage("it is wrong")
        .because("it is so")
        .remedy("do that");
    let text = anstream::adapter::strip_str(&refusal_lines(&failure)).to_string();
    assert_eq!(text, "error: it is wrong\n  why: it is so\n  try: do that");
    assert_eq!(
        refusal_object(&failure),
        r#"{"schema":1,"error":{"exit":2,"what":"it is wrong","why":"it is so","remedy":"do that"}}"#
    );
}

#[test]
fn what_all_is_wrong_is_told_line_by_line() {
    let listing = ["a:1: one".to_owned(), "a:2: two\u{1b}".to_owned()];
    let failure = Failure::usage("it is wrong")
        .listing(listing)
        .remedy("do that");
    let text = anstream::adapter::strip_str(&refusal_lines(&failure)).to_string();
    assert_eq!(
        text,
        "error: it is wrong\n  a:1: one\n  a:2: two\u{fffd}\n  try: do that"
    );
    let object: serde_json::Value =
        serde_json::from_str(&refusal_object(&failure)).expect("an object");
    assert_eq!(object["error"]["problems"][0], "a:1: one");
}
