//! Digests against values known elsewhere.

use super::*;

#[test]
fn bytes_lines_and_digest_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("abc");
    for (text, lines, sha256) in [
        (
            "",
            0,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
        (
            "abc",
            0,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            "a\nb\nc",
            2,
            "ea7fb08b7a2dc4619ffb7c7bb38d95a2047935fa165d71b12efd3852a2e6d0cc",
        ),
    ] {
        std::fs::write(&path, text).expect("a file");
        let digest = Digest::of_file(&path).expect("a digest");
        assert_eq!((digest.bytes, digest.lines), (text.len() as u64, lines));
        assert_eq!(digest.sha256, sha256);
    }
    assert!(Digest::of_file(folder.path()).is_err());
}
