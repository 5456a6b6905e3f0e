//! The count at the end.

use super::summary;

#[test]
fn counts_read_as_words() {
    assert_eq!(summary(0, 0), "no errors, no warnings");
    assert_eq!(summary(1, 2), "1 error, 2 warnings");
    assert_eq!(summary(2, 1), "2 errors, 1 warning");
}
