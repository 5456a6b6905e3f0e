//! Every refusal, with its line and what to do.

use super::read;

mod of_kinds;

/// The refusals of a file with this text, without the file's name.
fn refusals(text: &str) -> Vec<String> {
    let Err(problems) = read(text, &[]) else {
        panic!("nothing is wrong with {text}");
    };
    let place = "leasehold.toml:";
    let lines = problems.iter().map(|problem| problem.strip_prefix(place));
    lines.map(|line| line.expect(place).to_owned()).collect()
}

/// The text is refused for one thing: its line, a part of what is wrong, and a part of what to do.
#[track_caller]
fn check(cases: &[(&str, usize, &str, &str)]) {
    for (text, line, what, remedy) in cases {
        let told = refusals(text);
        let [told] = told.as_slice() else {
            panic!("{text}: {told:#?}");
        };
        let (place, rest) = told.split_once(": ").expect("a place");
        let (told_what, told_remedy) = rest.split_once("; ").expect("a remedy");
        assert_eq!(place, line.to_string(), "{told}");
        assert!(told_what.contains(what), "{told}");
        assert!(told_remedy.contains(remedy), "{told}");
    }
}

#[test]
fn a_text_that_is_no_toml() {
    check(&[
        (
            "a = \"x\n",
            1,
            "this is not TOML",
            "correct it at that place",
        ),
        (
            "\n\n[worker\n",
            3,
            "this is not TOML: unclosed table",
            "correct it",
        ),
        (
            "[worker]\nlease = \"1m\"\nlease = \"2m\"",
            3,
            "lease stands twice",
            "leave one",
        ),
        (
            "[worker]\n[lanes]\n[worker]\n",
            3,
            "worker stands twice",
            "leave one",
        ),
        ("x\u{0}y = 1", 1, "this is not TOML", "correct it"),
    ]);
}

#[test]
fn a_key_that_nobody_knows() {
    check(&[
        (
            "\ndatabas = 1",
            2,
            "databas is no key",
            "did you mean database?",
        ),
        (
            "zzz = 1",
            1,
            "zzz is no key",
            "the keys here are database, postgres, worker, lanes, kinds",
        ),
        (
            "capacity = 1",
            1,
            "capacity is no key",
            "belongs into the section [worker]",
        ),
        (
            "[worker]\nlaese = \"1m\"",
            2,
            "worker.laese is no key",
            "did you mean lease?",
        ),
        (
            "[lanes.a]\ncapacity = 1\ncapcity = 2",
            3,
            "lanes.a.capcity is no key",
            "did you mean capacity?",
        ),
        (
            "[lanes.a]\ncapacity = 1\nlease = \"1m\"",
            3,
            "lanes.a.lease is no key",
            "set lease in [worker]",
        ),
        (
            "[kinds.A]\ncommand = [\"a\"]\ncomand = 1",
            3,
            "kinds.A.comand is no key",
            "did you mean command?",
        ),
        (
            "[kinds.A]\ncommand = [\"a\"]\njitter = 1",
            3,
            "kinds.A.jitter is no key",
            "belongs into retry",
        ),
        (
            "[kinds.A]\ncommand = [\"a\"]\nretry = { bse = \"1s\" }",
            3,
            "kinds.A.retry.bse is no key",
            "did you mean base?",
        ),
        (
            "[kinds.A]\ncommand = [\"a\"]\nerrors = { X = { lvel = 1 } }",
            3,
            "kinds.A.errors.X.lvel is no key",
            "did you mean level?",
        ),
        (
            "[worker]\n\"a b\" = 1",
            2,
            "worker.\"a b\" is no key",
            "the keys here are name, lanes",
        ),
    ]);
}

#[test]
fn a_value_of_the_wrong_type() {
    check(&[
        (
            "database = 5",
            1,
            "database is a whole number, and a text is needed",
            "in quotes",
        ),
        (
            "worker = 5",
            1,
            "worker is a whole number, and a table is needed",
            "[worker]",
        ),
        (
            "kinds = []",
            1,
            "kinds is a list, and a table is needed",
            "[kinds]",
        ),
        (
            "[[worker]]",
            1,
            "worker is a list, and a table is needed",
            "[worker]",
        ),
        (
            "[lanes]\na = 5",
            2,
            "lanes.a is a whole number",
            "[lanes.a]",
        ),
        (
            "[worker]\nname = true",
            2,
            "worker.name is true or false",
            "in quotes",
        ),
        (
            "[worker]\nname = 2026-01-31",
            2,
            "worker.name is a date",
            "in quotes",
        ),
        (
            "[worker]\ncapacity = \"8\"",
            2,
            "worker.capacity is text, and a whole number is needed",
            "without quotes",
        ),
        (
            "[worker]\ncapacity = 8.0",
            2,
            "worker.capacity is a number with a fraction",
            "without quotes",
        ),
        (
            "[worker]\nlanes = \"mail\"",
            2,
            "worker.lanes is text, and a list of texts is needed",
            "lanes = [\"default\", \"mail\"]",
        ),
        (
            "[worker]\nlanes = [\n\"a\",\n5]",
            4,
            "number 2 of worker.lanes is a whole number",
            "in quotes",
        ),
        (
            "[worker]\nlease = 60",
            2,
            "worker.lease is a number without a unit",
            "\"60s\"",
        ),
        (
            "[worker]\nlease = 1.5",
            2,
            "worker.lease is a number without a unit",
            "\"60s\"",
        ),
        (
            "[worker]\nlease = []",
            2,
            "worker.lease is a list",
            "in quotes",
        ),
    ]);
}

#[test]
fn a_way_to_connect_that_is_none() {
    check(&[
        (
            "[postgres]\nwakeup = \"notify\"",
            2,
            "postgres.wakeup = \"notify\" is not a choice",
            "choose one of listen, poll",
        ),
        (
            "[postgres]\nwakeup = false",
            2,
            "postgres.wakeup is true or false, and a text is needed",
            "wakeup = \"listen\"",
        ),
        (
            "[postgres]\n\nconnections = 1",
            3,
            "postgres.connections = 1 is out of range",
            "give a number from 2 to 10000",
        ),
        (
            "[postgres]\nconnections = \"8\"",
            2,
            "postgres.connections is text, and a whole number is needed",
            "without quotes",
        ),
    ]);
}

#[test]
fn a_value_out_of_range() {
    check(&[
        (
            "[worker]\nlease = \"0s\"",
            2,
            "worker.lease = \"0s\" is no time at all",
            "60s",
        ),
        (
            "[worker]\nlease = \"-5s\"",
            2,
            "worker.lease \"-5s\" is not a duration: it is negative",
            "90s",
        ),
        (
            "[worker]\nlease = \"60\"",
            2,
            "worker.lease \"60\" is not a duration",
            "a number and a unit",
        ),
        (
            "[worker]\nlease = \"60x\"",
            2,
            "the unit \"x\" is unknown",
            "a number and a unit",
        ),
        (
            "[worker]\nlease = \"100ms\"",
            2,
            "worker.lease = \"100ms\" is not acceptable",
            "it must be between 200ms",
        ),
        (
            "[worker]\ndrain_timeout = \"0s\"",
            2,
            "no time at all",
            "500ms",
        ),
        (
            "[worker]\ncapacity = 0",
            2,
            "worker.capacity = 0 is not acceptable",
            "it must be between 1 and 10000",
        ),
        (
            "[worker]\ncapacity = -1",
            2,
            "worker.capacity = -1 is out of range",
            "from 0 to 4294967295",
        ),
        (
            "[worker]\ncapacity = 99999999999999999999",
            2,
            "worker.capacity = 99999999999999999999 is out of range",
            "from 0",
        ),
        (
            "[worker]\ntenant_cap = 0",
            2,
            "worker.tenant_cap = 0 is not acceptable",
            "it must be between 1",
        ),
        (
            "[worker]\nname = \"a b\"",
            2,
            "worker.name = \"a b\" is not acceptable",
            "it must be 1 to 100 printable characters",
        ),
        (
            "[worker]\nlanes = []",
            2,
            "worker.lanes = [] is not acceptable",
            "it must be between 1 and 100 lanes",
        ),
        (
            "[worker]\nhealth = \"localhost:1\"",
            2,
            "worker.health = \"localhost:1\" is no IP address and port",
            "127.0.0.1:9464",
        ),
        (
            "[lanes.a]\ncapacity = 0",
            2,
            "lanes.a.capacity = 0 is not acceptable",
            "it must be between 1 and 10000",
        ),
    ]);
    check(&[
        // Either of the two may be what was meant.
        (
            "[worker]\nsweep_interval = \"10s\"",
            2,
            "worker.sweep_budget = \"20s\" is not acceptable",
            "no longer than sweep_interval",
        ),
        (
            "[worker]\nsweep_budget = \"1h\"",
            2,
            "worker.sweep_budget = \"1h\" is not acceptable",
            "no longer than sweep_interval",
        ),
    ]);
}

#[test]
fn a_lane_that_cannot_be() {
    check(&[
        (
            "[worker]\nlanes = [\"a b\"]",
            2,
            "lane \"a b\" is not valid",
            "write a-b",
        ),
        (
            "[worker]\nlanes = [\"a\", \"a\"]",
            2,
            "worker.lanes names a twice",
            "leave one",
        ),
        (
            "[lanes.\"a b\"]\ncapacity = 1",
            1,
            "lane \"a b\" is not valid",
            "write a-b",
        ),
        ("\n[lanes.a]", 2, "lanes.a has no capacity", "add one"),
        (
            "[worker]\nlanes = [\"a\", \"b\"]\n[lanes.b]\ncapacity = 2",
            2,
            "the lane b stands in worker.lanes, and has a section of its own",
            "leave one",
        ),
        (
            "[kinds.A]\ncommand = [\"a\"]\nlane = \"\"",
            3,
            "lane \"\" is not valid",
            "another name",
        ),
    ]);
}

#[test]
fn a_lane_whose_worker_would_have_too_long_a_name() {
    let name = "n".repeat(99);
    let text = format!("[worker]\nname = {name:?}\n[lanes.a]\ncapacity = 1");
    check(&[(
        &text,
        4,
        "the worker of the lane a would be called",
        "100 printable",
    )]);
}

#[test]
fn all_that_is_wrong_is_told_at_once_in_the_order_of_the_file() {
    let text = "[kinds.A]\ncommand = 5\nlane = \"a b\"\n[worker]\nlanes = [\"a b\", 5]\ncapacity = 0\nlease = 5\nlese = 5";
    let lines: Vec<String> = refusals(text)
        .iter()
        .filter_map(|told| Some(told.split_once(':')?.0.to_owned()))
        .collect();
    assert_eq!(lines, ["2", "3", "5", "5", "6", "7", "8"]);
}

#[test]
fn a_flag_is_refused_by_its_name() {
    for (flags, place, what) in [
        (
            ["--capacity", "x"],
            "--capacity: ",
            "worker.capacity = \"x\" is no whole number",
        ),
        (
            ["--capacity", "0"],
            "--capacity: ",
            "worker.capacity = 0 is not acceptable",
        ),
        (
            ["--poll-interval", "5"],
            "--poll-interval: ",
            "is not a duration",
        ),
        (["--lanes", "a b"], "--lanes: ", "lane \"a b\" is not valid"),
        (["--health", "x"], "--health: ", "no IP address and port"),
        (["--stuck-max", "no"], "--stuck-max: ", "no whole number"),
    ] {
        let Err(problems) = read("", &flags) else {
            panic!("nothing is wrong with {flags:?}");
        };
        let [told] = problems.as_slice() else {
            panic!("{problems:#?}");
        };
        assert!(told.starts_with(place) && told.contains(what), "{told}");
    }
}
