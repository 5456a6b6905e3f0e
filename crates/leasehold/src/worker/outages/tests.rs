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

/// One failure each second from 0 on: when it is said.
fn told(complaint: &mut Complaint, from: u64, to: u64) -> Vec<u64> {
    let mut told = Vec::new();
    for second in from..to {
        if let Some(lasted) = complaint.failed(at(second)) {
            assert_eq!(lasted, Duration::from_secs(second - from));
            told.push(second);
        }
    }
    told
}

#[test]
fn calls_that_go_on_failing_are_told_of_at_growing_intervals() {
    let mut complaint = Complaint::default();
    let expected = [0, 10, 30, 70, 150, 310, 610, 910];
    assert_eq!(told(&mut complaint, 0, 1_000), expected);
}

#[test]
fn calls_that_work_again_are_told_of_once() {
    let mut complaint = Complaint::default();
    assert_eq!(complaint.answered(at(0)), None, "they always did");
    told(&mut complaint, 0, 25);
    let recovered = Recovered {
        after: Duration::from_secs(27),
        failures: 25,
    };
    assert_eq!(complaint.answered(at(27)), Some(recovered));
    assert_eq!(complaint.answered(at(28)), None);
}

#[test]
fn calls_that_fail_and_work_by_turns_are_told_of_no_more_often() {
    let mut complaint = Complaint::default();
    let (mut failures, mut recoveries) = (Vec::new(), 0);
    for second in (0..100).step_by(2) {
        failures.extend(complaint.failed(at(second)).map(|_| second));
        recoveries += u32::from(complaint.answered(at(second + 1)).is_some());
    }
    assert_eq!((failures, recoveries), (vec![0, 10, 30, 70], 4));
    // Quiet for as long as that, it is another story.
    assert_eq!(told(&mut complaint, 300, 320), [300, 310]);
}
