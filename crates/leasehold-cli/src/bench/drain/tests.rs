use super::ends;

#[test]
fn the_ends_of_a_series_are_ten_seconds_or_a_third() {
    let long: Vec<u64> = (0..100).collect();
    assert_eq!(ends(&long), (5.5, 94.5), "1 to 10, and 90 to 99");
    assert_eq!(ends(&[0, 2, 3, 9, 4, 7, 5]), (2.5, 6.0), "two of six");
    assert_eq!(ends(&[0, 8, 4]), (8.0, 4.0));
    assert_eq!(ends(&[7, 3]), (3.0, 3.0));
    assert_eq!(ends(&[7]), (0.0, 0.0), "a second that begins with nothing");
    assert_eq!(ends(&[]), (0.0, 0.0));
}
