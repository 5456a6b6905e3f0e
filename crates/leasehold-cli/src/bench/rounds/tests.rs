use serde::{Deserialize, Serialize};

use super::Rounds;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Found {
    items: u64,
    rate: f64,
    server: Option<f64>,
    series: Vec<u64>,
    inner: Inner,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    rate: f64,
}

fn found(rate: f64, server: Option<f64>) -> Found {
    let inner = Inner { rate: -rate };
    Found {
        items: 7,
        rate,
        server,
        series: vec![1, 2],
        inner,
    }
}

fn median(rounds: Vec<Found>) -> Option<Found> {
    let rounds = Rounds::of(rounds).expect("medians");
    rounds.map(|rounds| rounds.median)
}

#[test]
fn each_figure_has_the_median_of_its_own() {
    let rounds = vec![
        found(3.0, Some(1.0)),
        found(1.0, Some(3.0)),
        found(2.0, Some(8.0)),
    ];
    let median = median(rounds).expect("three rounds");
    assert_eq!(median.items, 7);
    assert!(median.series.is_empty());
    assert_eq!((median.rate, median.server), (2.0, Some(3.0)));
    assert_eq!(median.inner, Inner { rate: -2.0 });
}

#[test]
fn two_middle_rounds_are_averaged_and_missing_ones_left_out() {
    let two = median(vec![found(1.0, None), found(4.0, Some(5.0))]).expect("two rounds");
    assert_eq!((two.rate, two.server), (2.5, Some(5.0)));
    let none = median(vec![found(1.0, None), found(4.0, None)]).expect("two rounds");
    assert_eq!(none.server, None);
}

#[test]
fn no_round_has_no_median() {
    assert_eq!(median(Vec::new()), None);
}
