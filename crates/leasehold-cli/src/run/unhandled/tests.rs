//! What a person is told of what was left.

use super::*;

fn found(count: usize, kinds: &[&str], is_cut: bool) -> Option<String> {
    let place = |kind: &&str| (Kind::parse(kind).unwrap(), Lane::default());
    let places = kinds.iter().map(place).collect();
    let found = Unhandled {
        count,
        places,
        is_cut,
    };
    found.line()
}

#[test]
fn the_line_counts_and_names_a_few() {
    assert_eq!(found(0, &[], false), None);
    assert_eq!(found(0, &[], true), None);
    assert_eq!(
        found(1, &["A"], false).unwrap(),
        "1 due item has no handler here: A on default"
    );
    assert_eq!(
        found(900, &["A", "B", "C", "D", "E", "F"], true).unwrap(),
        "at least 900 due items have no handler here: A on default, B on default, C on default, \
         D on default, E on default, …"
    );
}
