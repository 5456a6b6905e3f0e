//! One broken promise is enough.

use super::*;
use crate::demo::ledger::Tally;

fn played() -> Played {
    Played {
        tally: Tally {
            items: 9,
            once: 9,
            ..Tally::default()
        },
        rescued_from_killed: 4,
        rescued_from_frozen: 3,
        refused_frozen: 3,
        refused_other: 0,
        counts_agree: true,
        hashed: Vec::new(),
    }
}

fn checked() -> Checked {
    Checked {
        matching: 9,
        ..Checked::default()
    }
}

#[track_caller]
fn expect(kept: bool, played: &Played, checked: Checked) {
    assert_eq!(
        Account::new(played, checked, PathBuf::new()).is_kept(),
        kept
    );
}

#[test]
fn a_demo_in_which_all_went_well_is_kept() {
    expect(true, &played(), checked());
}

#[test]
fn each_broken_promise_alone_breaks_it() {
    let breaks: [fn(&mut Played); 8] = [
        |played| played.rescued_from_killed = 0,
        |played| played.rescued_from_frozen = 0,
        |played| played.refused_frozen = 0,
        |played| played.counts_agree = false,
        |played| played.tally.once = 8,
        |played| {
            played.tally.once = 8;
            played.tally.twice = 1;
        },
        |played| {
            played.tally.once = 8;
            played.tally.lost = 1;
        },
        |played| {
            played.tally.once = 8;
            played.tally.unexplained = 1;
        },
    ];
    for break_it in breaks {
        let mut played = played();
        break_it(&mut played);
        expect(false, &played, checked());
    }
    let wrong = Checked {
        mismatched: 1,
        ..checked()
    };
    expect(false, &played(), wrong);
}

#[test]
fn files_that_went_away_or_were_changed_break_nothing() {
    let mut played = played();
    played.tally.once = 8;
    played.tally.failed = 1;
    let changed = Checked {
        changed: 2,
        ..checked()
    };
    expect(true, &played, changed);
}
