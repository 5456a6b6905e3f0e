//! The demo: real workers, a real kill, a real freeze.

use crate::harness::Place;

#[cfg(test)]
mod crash_real_process;

#[test]
fn a_folder_without_work_is_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("empty")).expect("a folder");
    place.refused(2, &["demo", "empty"]);
    place.refused(2, &["demo", "nowhere"]);
    assert_eq!(place.run(&["demo", "--limit", "0"]).code, 2);
}

#[cfg(test)]
mod real_process {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;
    use std::time::Duration;

    use rustix::process::{Pid, Signal, kill_process, test_kill_process};
    use serde_json::Value;

    use crate::harness::Place;

    fn folder_of(files: u32) -> Place {
        let place = Place::new();
        for number in 0..files {
            let text = "line\n".repeat(number as usize);
            place.file(&format!("work/{}/{number}.txt", number % 3), text);
        }
        place.file("work/target/left-out", "x");
        place
    }

    #[test]
    fn every_promise_is_kept_on_a_small_folder() {
        let place = folder_of(40);
        let account = place.json(&["demo", "work", "--manifest", "manifest.jsonl"]);
        assert_eq!(account["kept"], true, "{account}");
        assert_eq!(account["items"], 40);
        assert_eq!(account["done_once"], 40);
        assert_eq!(account["duplicates"], 0);
        assert_eq!(account["lost"], 0);
        for who in ["killed", "frozen"] {
            assert!(account["rescued"][who].as_u64() > Some(0), "{account}");
        }
        assert!(
            account["refused_writes"]["frozen"].as_u64() > Some(0),
            "{account}"
        );

        let manifest = std::fs::read_to_string(place.path().join("manifest.jsonl"));
        let lines: Vec<Value> = manifest
            .expect("a manifest")
            .lines()
            .map(|line| serde_json::from_str(line).expect("an object a line"))
            .collect();
        assert_eq!(lines.len(), 40);
        let seven = lines
            .iter()
            .find(|line| line["path"] == "1/7.txt")
            .expect("the file");
        assert_eq!((&seven["bytes"], &seven["lines"]), (&35.into(), &7.into()));
        assert_eq!(seven["sha256"].as_str().map(str::len), Some(64));
        let left: Vec<_> = leftovers(&place);
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_single_file_is_rescued_twice_and_the_database_can_be_kept() {
        let place = folder_of(1);
        let ended = place.run(&["demo", "work", "--keep"]);
        assert_eq!(ended.code, 0, "{}", ended.talk);
        for event in [
            "SIGKILL",
            "SIGSTOP",
            "SIGCONT",
            "refused: the late",
            "recovered",
        ] {
            assert!(ended.talk.contains(event), "{event}: {}", ended.talk);
        }
        assert!(ended.out.contains("duplicates\t0\t"), "{}", ended.out);
        let database = leftovers(&place).pop().expect("a folder").join("queue.db");
        let database = database.to_str().expect("a path");
        let listed = place.json(&["items", "list", "--database", database]);
        assert_eq!(listed["items"][0]["status"], "done");
        assert_eq!(listed["items"][0]["fence"], 3, "killed, frozen, done");
        assert_eq!(listed["items"][0]["worker_losses"], 2);
    }

    #[test]
    fn interrupted_it_leaves_no_process_and_no_folder() {
        for signal in [Signal::INT, Signal::TERM] {
            let place = folder_of(60);
            let mut child = place
                .command(&["demo", "work"])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the demo");
            let mut lines = BufReader::new(child.stderr.take().expect("its story")).lines();
            let mut story = || lines.next().expect("a line").expect("text");
            // In the worst moment: one worker is dead, one is stopped.
            let mut workers = Vec::new();
            loop {
                let line = story();
                workers.extend(pids(&line));
                if line.contains("SIGSTOP") {
                    break;
                }
            }
            assert_eq!(workers.len(), 3);
            let demo = Pid::from_raw(i32::try_from(child.id()).expect("a pid")).expect("a pid");
            kill_process(demo, signal).expect("a signal");
            assert_eq!(child.wait().expect("its end").code(), Some(130));
            workers.into_iter().for_each(wait_until_gone);
            assert!(leftovers(&place).is_empty());
        }
    }

    #[test]
    fn killed_it_takes_its_workers_along() {
        let place = folder_of(60);
        let mut child = place
            .command(&["demo", "work"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the demo");
        let mut lines = BufReader::new(child.stderr.take().expect("its story")).lines();
        let mut workers = Vec::new();
        while let Some(Ok(line)) = lines.next() {
            workers.extend(pids(&line));
            if line.contains("SIGSTOP") {
                break;
            }
        }
        assert_eq!(workers.len(), 3);
        child.kill().expect("a kill");
        child.wait().expect("its end");
        workers.into_iter().for_each(wait_until_gone);
    }

    fn leftovers(place: &Place) -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(place.path()).expect("the folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.to_string_lossy().contains("leasehold-demo-"))
            .collect()
    }

    /// The processes that a line of the story introduces.
    fn pids(line: &str) -> Vec<Pid> {
        line.split("(pid ")
            .skip(1)
            .filter_map(|rest| Pid::from_raw(rest.split(')').next()?.parse().ok()?))
            .collect()
    }

    /// Whoever adopted it may not have reaped it: a dead process is gone for us.
    #[expect(
        clippy::disallowed_methods,
        reason = "another process ends in its own time"
    )]
    fn wait_until_gone(pid: Pid) {
        let lives = || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            test_kill_process(pid).is_ok() && state != Some('Z')
        };
        for _ in 0..600 {
            if !lives() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20)); // real time: the process ends in its own
        }
        panic!("process {pid} outlives the demo");
    }
}
