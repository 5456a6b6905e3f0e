use proptest::prelude::*;

use super::*;

#[test]
fn stdout_is_kept_up_to_the_limit_and_not_a_byte_further() {
    let mut capture = StdoutCapture::new(8);
    assert!(!capture.push(b"four"));
    assert!(!capture.push(b"more"), "exactly the limit is within it");
    assert!(!capture.push(b""));
    assert!(capture.push(b"!"));
    assert!(capture.push(b"again"));
    assert_eq!(capture.into_bytes(), b"fourmore");
}

#[test]
fn what_fits_of_the_chunk_that_passes_the_limit_is_kept() {
    let mut capture = StdoutCapture::new(8);
    assert!(capture.push(b"0123456789"));
    assert_eq!(capture.into_bytes(), b"01234567");
}

#[test]
fn a_flood_takes_no_memory_beyond_the_limits() {
    let chunk = [b'x'; 8_000];
    let mut stdout = StdoutCapture::default();
    let mut stderr = StderrCapture::default();
    for _ in 0..1_000 {
        let _ = stdout.push(&chunk);
        stderr.push(&chunk);
        assert!(stdout.bytes.capacity() <= STDOUT_BYTES_MAX);
        assert!(stderr.head.capacity() + stderr.tail.capacity() <= STDERR_BYTES_KEPT);
    }
    assert_eq!(stderr.total_bytes(), 8_000_000);
    assert_eq!(stdout.into_bytes().len(), STDOUT_BYTES_MAX);
}

#[test]
fn stderr_within_the_limit_is_kept_whole() {
    let mut capture = StderrCapture::new(16);
    capture.push("0123€".as_bytes());
    capture.push("56789 ok\n".as_bytes());
    assert_eq!(capture.to_text(), "0123€56789 ok\n");
    assert_eq!(capture.total_bytes(), 16);
    assert_eq!(
        capture.tail(100),
        "0123€56789 ok\n",
        "the end may reach into the beginning"
    );
    assert_eq!(capture.tail(4), " ok\n");
}

#[test]
fn stderr_beyond_the_limit_keeps_both_ends() {
    let mut capture = StderrCapture::new(16);
    capture.push(b"head");
    for _ in 0..1_000_000 {
        capture.push(b"0123456789");
    }
    capture.push(b"the tail\n");
    assert_eq!(
        capture.to_text(),
        "head\n[… 9,999,997 bytes left out …]\n789the tail\n"
    );
    assert_eq!(capture.tail(5), "tail\n");
    assert_eq!(
        capture.tail(100),
        "789the tail\n",
        "nothing from before the gap"
    );
}

#[test]
fn a_character_at_the_gap_is_left_out_whole() {
    let mut capture = StderrCapture::new(16);
    capture.push("ab€".as_bytes());
    capture.push("€€€€€".as_bytes());
    assert_eq!(capture.to_text(), "ab\n[… 6 bytes left out …]\n€€€€");
    assert_eq!(capture.tail(4), "€");
}

#[test]
fn broken_bytes_are_spelled_out_within_the_limit_of_the_tail() {
    let mut capture = StderrCapture::new(64);
    capture.push(b"\xff\xff\xff");
    assert_eq!(capture.to_text(), "\\xff\\xff\\xff");
    assert_eq!(capture.tail(3), "xff");
}

/// All the lines of `chunks`, as text.
fn lines(line_bytes_max: usize, chunks: &[&[u8]]) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = Lines::new(line_bytes_max);
    for chunk in chunks {
        lines.push(chunk, |line| found.push(line.to_text()));
    }
    lines.finish(|line| found.push(line.to_text()));
    found
}

#[test]
fn lines_end_in_three_ways() {
    let table: [(&[u8], &[&str]); 9] = [
        (b"", &[]),
        (b"a\nb\n", &["a", "b"]),
        (b"a\r\nb\r\n", &["a", "b"]),
        (b"unfinished", &["unfinished"]),
        (b"10%\r50%\r100%\ndone\n", &["10%", "50%", "100%", "done"]),
        (b"\r10%\r20%", &["10%", "20%"]),
        (b"a\n\nb", &["a", "", "b"]),
        (b"a\r\n\r\nb", &["a", "", "b"]),
        (b"\n", &[""]),
    ];
    for (bytes, expected) in table {
        assert_eq!(lines(100, &[bytes]), expected, "{}", escape(bytes));
    }
}

#[test]
fn a_line_is_called_back_as_soon_as_it_is_complete() {
    let mut seen = Vec::new();
    let mut lines = Lines::default();
    lines.push(b"40", |_| unreachable!());
    lines.push(b"%\r", |line| seen.push(line.to_text()));
    assert_eq!(seen, ["40%"]);
    lines.push(b"\n", |_| panic!("the end of the same line"));
    lines.finish(|_| panic!("nothing is left"));
}

#[test]
fn a_long_line_is_cut_and_the_rest_counted() {
    let long = "x".repeat(1_234_567);
    assert_eq!(
        lines(4, &[long.as_bytes(), b"\nshort\n"]),
        [
            "xxxx [… 1,234,563 bytes left out …]",
            "shor [… 1 bytes left out …]"
        ]
    );
    assert_eq!(
        lines(4, &["ab€\n".as_bytes()]),
        ["ab [… 3 bytes left out …]"],
        "not inside a character"
    );
    assert_eq!(
        lines(4, &[b"1234"]),
        ["1234"],
        "exactly the limit is within it"
    );
}

proptest! {
    #[test]
    fn lines_do_not_depend_on_the_chunks(bytes in "[ab\r\n\u{e9}]{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..6)) {
        let bytes = bytes.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|at| at.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(lines(5, &chunks), lines(5, &[bytes]));
    }

    #[test]
    fn any_stderr_is_kept_within_its_limit(chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12), limit in 0_usize..64, end in 0_usize..64) {
        let mut capture = StderrCapture::new(limit);
        let mut all = Vec::new();
        for chunk in &chunks {
            capture.push(chunk);
            all.extend_from_slice(chunk);
        }
        prop_assert_eq!(capture.total_bytes(), all.len() as u64);
        prop_assert!(capture.head.len() + capture.tail.len() <= limit);
        let text = capture.to_text();
        if all.len() <= limit {
            prop_assert_eq!(text, escape(&all));
        } else {
            prop_assert!(text.contains("bytes left out"));
            prop_assert!(all.starts_with(&capture.head));
            prop_assert!(all.ends_with(&capture.tail_bytes()));
        }
        prop_assert!(capture.tail(end).len() <= end);
    }
}
