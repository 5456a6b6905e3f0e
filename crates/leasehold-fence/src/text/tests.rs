use proptest::prelude::*;

use super::*;

#[test]
fn printable_text_is_kept() {
    for text in [
        "",
        "naïve 😀 e\u{301}",
        "C:\\new\\table",
        "two\nlines\tand a tab",
    ] {
        assert_eq!(escape(text.as_bytes()), text);
    }
}

#[test]
fn what_is_not_printable_is_spelled_out() {
    let table: [(&[u8], &str); 7] = [
        (b"a\0b", "a\\u{0}b"),
        (b"\x1b[31mred", "\\u{1b}[31mred"),
        (b"50%\r100%", "50%\\u{d}100%"),
        (b"\x7f", "\\u{7f}"),
        ("\u{85}".as_bytes(), "\\u{85}"),
        (b"caf\xe9!", "caf\\xe9!"),
        (b"\xf0\x9f\x98", "\\xf0\\x9f\\x98"),
    ];
    for (bytes, text) in table {
        assert_eq!(escape(bytes), text);
    }
}

#[test]
fn the_one_ambiguity_is_the_documented_one() {
    assert_eq!(escape(b"\xff"), escape(br"\xff"));
}

/// Characters of one to four bytes, and a combining sequence.
const PIECES: [&str; 5] = ["a", "é", "€", "😀", "e\u{301}"];

#[test]
fn every_length_around_the_limit_is_cut_on_a_boundary() {
    const LIMIT: usize = 64;
    for piece in PIECES {
        for length in LIMIT - 4..=LIMIT + 4 {
            let mut text = piece.repeat(length / piece.len());
            text.push_str(&"x".repeat(length - text.len()));
            let kept = clip(&text, LIMIT);
            assert!(kept.len() <= LIMIT, "{} of {length}", kept.len());
            if length <= LIMIT {
                assert_eq!(kept, text);
            } else {
                let body = kept.strip_suffix(CUT_MARKER).expect("a marker");
                assert!(text.starts_with(body));
                assert!(
                    body.len() + CUT_MARKER.len() + 3 >= LIMIT,
                    "too much was cut"
                );
            }
        }
    }
}

#[test]
fn the_end_begins_with_a_whole_line() {
    assert_eq!(last_lines("one\ntwo\nthree", 99), "one\ntwo\nthree");
    assert_eq!(last_lines("one\ntwo\nthree", 11), "two\nthree");
    assert_eq!(last_lines("one\ntwo\nthree", 9), "two\nthree");
    assert_eq!(last_lines("one\ntwo\nthree", 8), "three");
    assert_eq!(
        last_lines("one\ntwo\nthree", 3),
        "ree",
        "no line begins within it"
    );
    assert_eq!(
        last_lines("ab€", 2),
        "",
        "a character is kept whole or not at all"
    );
    assert_eq!(
        last_lines("one\ntwo\n", 3),
        "wo\n",
        "an empty end says nothing"
    );
}

#[test]
fn numbers_are_grouped_by_thousands() {
    for (number, text) in [
        (0, "0"),
        (999, "999"),
        (1_000, "1,000"),
        (104_333_312, "104,333,312"),
        (1_000_007, "1,000,007"),
    ] {
        assert_eq!(Grouped(number).to_string(), text);
    }
}

proptest! {
    #[test]
    fn any_bytes_become_printable_text(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let text = escape(&bytes);
        prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        prop_assert_eq!(escape(text.as_bytes()), text, "escaping twice changes nothing more");
    }

    #[test]
    fn without_backslashes_the_text_names_its_bytes(
        bytes in proptest::collection::vec(any::<u8>().prop_filter("no backslash", |b| *b != b'\\'), 0..128)
    ) {
        prop_assert_eq!(unescape(&escape(&bytes)), bytes);
    }

    #[test]
    fn clipping_never_exceeds_the_limit_and_keeps_a_prefix(text in any::<String>(), limit in 0_usize..64) {
        let cut = clip(&text, limit);
        prop_assert!(cut.len() <= limit);
        let body = cut.strip_suffix(CUT_MARKER).unwrap_or(&cut);
        prop_assert!(text.starts_with(body));
    }

    #[test]
    fn a_text_cut_anywhere_is_text_on_both_sides(text in any::<String>(), at in any::<prop::sample::Index>()) {
        let (head, tail) = text.as_bytes().split_at(at.index(text.len() + 1));
        let head = &head[..head.len() - cut_at_end(head)];
        let tail = &tail[cut_at_start(tail)..];
        prop_assert!(text.starts_with(std::str::from_utf8(head).unwrap()));
        prop_assert!(text.ends_with(std::str::from_utf8(tail).unwrap()));
        prop_assert!(head.len() + tail.len() + 4 >= text.len(), "more than one character is gone");
    }

    #[test]
    fn the_end_never_exceeds_its_limit(text in "[a\u{e9}\u{20ac}\n]{0,40}", limit in 0_usize..50) {
        let end = last_lines(&text, limit);
        prop_assert!(end.len() <= limit);
        prop_assert!(text.ends_with(end));
    }
}

/// Reads the escapes back.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend(plain.bytes());
        if let Some(escaped) = escaped.strip_prefix('x') {
            bytes.push(u8::from_str_radix(&escaped[..2], 16).unwrap());
            rest = &escaped[2..];
        } else {
            let (number, after) = escaped.strip_prefix("u{").unwrap().split_once('}').unwrap();
            let number = u32::from_str_radix(number, 16).unwrap();
            bytes.extend(char::from_u32(number).unwrap().to_string().bytes());
            rest = after;
        }
    }
    bytes.extend(rest.bytes());
    bytes
}

#[test]
fn characters_that_steer_what_stands_beside_them_are_escaped() {
    let written = "a\u{202e}b\u{200b}c\u{2028}d\u{feff}e\u{2066}f";
    assert_eq!(
        escape(written.as_bytes()),
        "a\\u{202e}b\\u{200b}c\\u{2028}d\\u{feff}e\\u{2066}f"
    );
    // What shows is kept, whatever its direction.
    assert_eq!(escape("שלום مرحبا".as_bytes()), "שלום مرحبا");
}
