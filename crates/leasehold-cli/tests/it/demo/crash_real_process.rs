//! The demo of commands: a real tree, a real kill, a real freeze.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::Place;
use crate::process::{Process, Seen, eventually};

/// Where the demo keeps its folder while it runs.
fn leftovers(place: &Place) -> Vec<String> {
    let entries = std::fs::read_dir(place.path()).expect("the folder");
    let names = entries.map(|entry| {
        entry
            .expect("an entry")
            .file_name()
            .to_string_lossy()
            .into_owned()
    });
    names
        .filter(|name| name.starts_with("leasehold-demo-"))
        .collect()
}

/// The living processes that work in the place, the demo's own and those of its commands.
fn at_work(place: &Place) -> Vec<Seen> {
    let all = Seen::all().into_iter();
    all.filter(|one| {
        let folder = std::fs::read_link(format!("/proc/{}/cwd", one.pid));
        one.is_alive() && folder.is_ok_and(|folder| folder.starts_with(place.path()))
    })
    .collect()
}

#[test]
fn no_process_outlives_the_lease_of_its_worker() {
    let place = Place::new();
    let account = place.json(&["demo", "crash"]);
    assert_eq!(account["kept"], true, "{account}");
    let acts = account["acts"].as_array().expect("acts");
    let blows: Vec<&Value> = acts.iter().map(|act| &act["blow"]).collect();
    assert_eq!(blows, ["killed", "frozen"]);
    for act in acts {
        let processes = act["processes"].as_array().expect("processes");
        let of = |name: &str| {
            let mut all = processes.iter();
            all.find(|one| one["name"] == name)
                .unwrap_or_else(|| panic!("{name}: {act}"))
        };
        let (command, child) = (of("command"), of("child"));
        let (grandchild, forked) = (of("grandchild"), of("forked-twice"));
        assert_eq!(command["group"], command["pid"], "a group of its own");
        assert_eq!(child["group"], command["group"]);
        assert_eq!(
            (&child["parent"], &grandchild["parent"]),
            (&command["pid"], &child["pid"])
        );
        assert_eq!(forked["parent"], command["parent"], "handed to the warden");
        for away in [grandchild, forked] {
            assert_eq!(away["session"], away["pid"], "a session of its own");
        }
        for process in processes {
            let gone = process["gone_after_ms"].as_u64().expect("gone");
            assert!(
                gone <= act["gone_after_ms"].as_u64().expect("gone"),
                "{act}"
            );
        }
        assert!(act["lease_left_ms"].as_u64() > Some(0), "{act}");
        assert!(
            act["second_run_after_ms"].as_u64() > act["gone_after_ms"].as_u64(),
            "{act}"
        );
        assert!(act["marks"].as_u64() > Some(8), "{act}");
        assert_eq!(act["late_marks"], 0);
        assert_eq!((&act["attempts"], &act["fence"]), (&2.into(), &2.into()));
        assert_eq!(act["status"], "done");
    }
    assert!(leftovers(&place).is_empty(), "{:?}", leftovers(&place));
    assert!(at_work(&place).is_empty(), "{:?}", at_work(&place));
}

#[test]
fn it_tells_what_happens_and_can_leave_its_database() {
    let place = Place::new();
    let ended = place.run(&["demo", "crash", "--keep"]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    for word in [
        "forked-twice",
        "SIGKILL",
        "SIGSTOP",
        "SIGCONT",
        "every promise was kept",
    ] {
        assert!(ended.talk.contains(word), "{word}: {}", ended.talk);
    }
    assert!(
        ended.out.contains("of them during the second\t0\t0\n"),
        "{}",
        ended.out
    );
    let database = format!("{}/queue.db", leftovers(&place).pop().expect("a folder"));
    let listed = place.json(&["items", "list", "--database", &database]);
    let items = listed["items"].as_array().expect("items");
    assert_eq!(items.len(), 2);
    for item in items {
        assert_eq!(
            (&item["status"], &item["worker_losses"]),
            (&"done".into(), &1.into()),
            "{item}"
        );
    }
}

#[test]
fn interrupted_or_killed_it_leaves_no_process() {
    for (signal, at) in [
        (Signal::INT, "SIGSTOP"),
        (Signal::TERM, "pid   parent"),
        (Signal::KILL, "SIGSTOP"),
    ] {
        let place = Place::new();
        let demo = Process::start(&place, place.command(&["demo", "crash"]));
        demo.until_said(at);
        demo.signal(signal);
        let ended = demo.ended();
        let is_left = eventually(|| at_work(&place).is_empty());
        assert!(is_left, "{:?}", at_work(&place));
        if signal != Signal::KILL {
            assert_eq!(ended.code, 130, "{}", ended.talk);
            assert!(leftovers(&place).is_empty(), "{:?}", leftovers(&place));
        }
    }
}

#[test]
fn what_belongs_to_the_other_demo_is_refused() {
    let place = Place::new();
    assert_eq!(place.run(&["demo", "crash", "--limit", "3"]).code, 2);
    assert_eq!(place.run(&["demo", "--limit", "3", "crash"]).code, 2);
    place.refused(2, &["demo", "crash", "--database", "other.db"]);
    let help = place.run(&["demo", "crash", "--help"]).out;
    assert!(!help.contains("--database"), "{help}");
    let help = place.run(&["demo", "--help"]).out;
    assert!(help.contains("leasehold demo crash"), "{help}");
}
