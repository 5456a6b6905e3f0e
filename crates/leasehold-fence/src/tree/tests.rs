use std::process::{Child, Command, Stdio};

use super::*;

/// Children that end when the case does.
struct Children(Vec<Child>);

impl Children {
    fn start(count: usize) -> Self {
        let start = || {
            Command::new("cat")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        Self((0..count).map(|_| start()).collect())
    }

    fn pids(&self) -> Vec<Pid> {
        self.0.iter().map(Pid::from_child).collect()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may be gone already, which is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn both_ways_of_looking_agree() {
    let mut children = Children::start(5);
    // One has ended and was not waited for.
    children.0[2].kill().unwrap();
    let all = children.pids();
    let own = |found: Vec<Pid>| {
        // Beside other cases in one process, there are children of theirs.
        let mut own: Vec<Pid> = found.into_iter().filter(|pid| all.contains(pid)).collect();
        own.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        own
    };
    let mut expected = all.clone();
    expected.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
    assert_eq!(own(listed(getpid()).unwrap()), expected);
    assert_eq!(own(searched(getpid())), expected);
}

#[test]
fn who_is_gone_has_no_children() {
    let mut children = Children::start(1);
    let pid = children.pids()[0];
    children.0[0].kill().unwrap();
    children.0[0].wait().unwrap();
    assert_eq!(children_of(pid), []);
    assert_eq!(parent_of(pid), None);
}

#[test]
fn a_parent_is_found_whatever_the_name() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plain", "a b", "a) b (c", ") 1 2 3", "((", "))"] {
        let program = folder.path().join(name);
        std::fs::copy("/bin/cat", &program).unwrap();
        let mut child = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let parent = parent_of(pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parent, Some(getpid()), "{name:?}");
    }
}

#[test]
fn a_round_of_killing_spares_whom_it_must() {
    // A test has threads, whose children no single list holds.
    let own = super::Children { list: None };
    let mut children = Children::start(3);
    let pids = children.pids();
    // Whatever else is a child of this process is another case's, and spared, too.
    let spared: Vec<Pid> = children_of(getpid())
        .into_iter()
        .filter(|pid| *pid != pids[1])
        .collect();
    assert_ne!(kill_round(&own, &spared), Left::Nobody);
    let mut rounds = 0;
    while kill_round(&own, &spared) != Left::Nobody {
        rounds += 1;
        assert!(rounds < 10_000, "a killed process does not end");
        pause(Duration::from_millis(1));
    }
    assert!(children.0[0].try_wait().unwrap().is_none());
    assert!(children.0[2].try_wait().unwrap().is_none());
    // Reaped already.
    assert!(children.0[1].try_wait().is_err());
}
