//! What the simulation is called with.

use super::*;

fn called_with(given: &[&str]) -> Result<Vec<String>> {
    let given: Vec<String> = given.iter().map(|&argument| argument.to_owned()).collect();
    arguments(SOAK, &given)
}

#[test]
fn seeds_are_the_callers_or_the_usual_ones() {
    assert_eq!(called_with(&[]).unwrap(), SOAK);
    assert_eq!(called_with(&["--seed", "7"]).unwrap(), ["--seed", "7"]);
    assert_eq!(
        called_with(&["--seeds", "5..9", "--fresh", "2"]).unwrap(),
        ["--seeds", "5..9", "--fresh", "2"]
    );
}

#[test]
fn what_follows_two_dashes_is_passed_on_unread() {
    assert_eq!(
        called_with(&["--seed", "7", "--", "-v"]).unwrap(),
        ["--seed", "7", "-v"]
    );
    assert_eq!(
        called_with(&["--", "-v"]).unwrap(),
        ["--seeds", "0..10000", "-v"]
    );
}

#[test]
fn a_wrong_argument_is_named_before_anything_is_built() {
    for (given, named) in [
        (&["--sed", "7"][..], "`--sed` is not known"),
        (&["--verbose"], "`--verbose` is not known"),
        (&["--seed"], "`--seed` needs a value"),
        (&["--seed", "seven"], "`seven` is not a whole number"),
        (&["--seeds", "7"], "`7` has no `..`"),
        (&["--seeds", "9..5"], "`9..5` is empty"),
    ] {
        let error = format!("{:#}", called_with(given).unwrap_err());
        assert!(error.contains(named), "{error}");
    }
}
