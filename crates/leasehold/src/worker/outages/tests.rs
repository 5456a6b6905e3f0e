use super::*;

fn at(seconds: u64) -> BootTime {
    BootTime::new(Duration::from_secs(1_000 + seconds))
}

#[test]
fn without_an_outage_it_is_calm() {
    let outages = Outages::default();
    assert!(outages.is_calm(at(0)));
    outages.answered(at(1));
    assert!(outages.is_calm(at(1)));
    outages.note_if(&StoreError::Retry("undone".into()), at(2));
    assert!(outages.is_calm(at(2)), "the store was within reach");
}

#[test]
fn an_outage_lasts_until_the_first_answer_and_a_while_longer() {
    let outages = Outages::default();
    outages.note_if(&StoreError::Unavailable("down".into()), at(0));
    assert!(!outages.is_calm(at(100)), "nothing was answered since");
    outages.answered(at(100));
    outages.answered(at(102));
    assert!(!outages.is_calm(at(102)));
    assert!(outages.is_calm(at(103)), "counted from the first answer");
    outages.note(at(104));
    assert!(!outages.is_calm(at(200)));
}

#[test]
fn time_that_the_keeper_has_not_seen_is_not_calm() {
    let outages = Outages::default();
    assert!(!outages.is_unwatched(at(0)), "it has not begun to look");
    outages.look(at(0));
    assert!(!outages.is_unwatched(at(1)));
    assert!(outages.is_unwatched(at(2)) && !outages.is_calm(at(2)));
    outages.look(at(2));
    assert!(outages.is_calm(at(2)));
}
