use proptest::prelude::*;

use super::*;

#[test]
fn text_within_the_limit_is_kept_whole() {
    assert_eq!(clip("naïve", 6), "naïve");
    assert_eq!(ShortText::new("ok").as_str(), "ok");
}

#[test]
fn a_zero_character_is_replaced_and_not_dropped() {
    assert_eq!(ShortText::new("a\0b").as_str(), "a\u{FFFD}b");
}

#[test]
fn bytes_that_are_not_text_are_kept_readable() {
    assert_eq!(ShortText::from_bytes(b"ab\xFFcd").as_str(), "ab\u{FFFD}cd");
}

/// Characters of one to four bytes, and a combining sequence.
const PIECES: [&str; 5] = ["a", "é", "€", "😀", "e\u{301}"];

#[test]
fn every_length_around_the_limit_is_cut_on_a_boundary() {
    for piece in PIECES {
        for length in ShortText::BYTES_MAX - 4..=ShortText::BYTES_MAX + 4 {
            let mut text = piece.repeat(length / piece.len());
            text.push_str(&"x".repeat(length - text.len()));
            let kept = ShortText::new(&text);
            assert!(kept.as_str().len() <= ShortText::BYTES_MAX);
            if length <= ShortText::BYTES_MAX {
                assert_eq!(kept.as_str(), text);
            } else {
                let body = kept.as_str().strip_suffix(CUT_MARKER).expect("a marker");
                assert!(text.starts_with(body));
            }
        }
    }
}

proptest! {
    #[test]
    fn clipping_never_exceeds_the_limit_and_keeps_a_prefix(text in any::<String>(), limit in 0_usize..64) {
        let cut = clip(&text, limit);
        prop_assert!(cut.len() <= limit.max(text.len().min(limit)));
        let body = cut.strip_suffix(CUT_MARKER).unwrap_or(&cut);
        prop_assert!(text.starts_with(body));
    }

    #[test]
    fn any_bytes_become_valid_short_text(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        let kept = ShortText::from_bytes(&bytes);
        prop_assert!(kept.as_str().len() <= ShortText::BYTES_MAX);
        prop_assert!(!kept.as_str().contains('\0'));
    }
}
