use super::*;

#[test]
fn the_pages_of_two_workers_become_one_in_which_each_family_stands_once() {
    let page = |slots| {
        let metrics = Metrics::new();
        metrics.slots(slots, 1, 0);
        metrics.finished(&Kind::parse("JOB").unwrap(), Verdict::Done);
        metrics.encode()
    };
    let merged = merged([("a", page(3)), ("odd \"b\"", page(5))]);
    let lines: Vec<&str> = merged.lines().collect();
    let count = |wanted: &str| lines.iter().filter(|line| **line == wanted).count();
    assert_eq!(count("# TYPE leasehold_worker_slots gauge"), 1);
    assert_eq!(count("leasehold_worker_slots{worker=\"a\"} 3"), 1);
    assert_eq!(
        count("leasehold_worker_slots{worker=\"odd \\\"b\\\"\"} 5"),
        1
    );
    let done = "leasehold_items_finished_total{worker=\"a\",kind=\"JOB\",outcome=\"done\"} 1";
    assert_eq!(count(done), 1, "{merged}");
    assert_eq!(count("# EOF"), 1);
    assert_eq!(lines.last(), Some(&"# EOF"));
    // A family is not taken up again once another has begun.
    let mut seen = Vec::new();
    for line in lines.iter().filter_map(|line| line.strip_prefix("# TYPE ")) {
        assert!(!seen.contains(&line), "{line}");
        seen.push(line);
    }
}

#[test]
fn a_page_alone_is_the_same_but_for_the_label() {
    let metrics = Metrics::new();
    metrics.slots(3, 2, 1);
    let alone = metrics.encode();
    let merged = merged([("w", alone.clone())]);
    let without = merged
        .replace("worker=\"w\",", "")
        .replace("{worker=\"w\"}", "");
    assert_eq!(without, alone);
}

#[test]
fn what_the_page_shows_stands_in_the_table_as_it_is_shown() {
    let mut metrics = Metrics::new();
    let kind = Kind::parse("JOB").unwrap();
    metrics.begin(std::iter::once(&kind));
    let page = metrics.encode();
    let mut shown = 0;
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, form) = line.split_once(' ').unwrap();
        let stem = name.strip_prefix("leasehold_").unwrap();
        let named = names::ALL.iter().find(|named| named.stem == stem).unwrap();
        assert_eq!(form, format!("{:?}", named.form).to_lowercase(), "{stem}");
        let sample = page.lines().find(|line| line.starts_with(&named.name()));
        if let Some((_, labels)) = sample.and_then(|sample| sample.split_once('{')) {
            let labels = labels.split_once('}').unwrap().0.split(',');
            let labels: Vec<&str> = labels
                .filter_map(|label| label.split_once('='))
                .map(|(name, _)| name)
                .collect();
            let labels: Vec<&str> = labels.into_iter().filter(|name| *name != "le").collect();
            assert_eq!(labels, named.labels, "{stem}");
        }
        shown += 1;
    }
    // Families appear with their first label set; most have one from the start.
    assert!(shown > names::ALL.len() / 2, "{page}");
}
