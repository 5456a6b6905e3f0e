//! Stopped in each way in which containers are, and handed orphans that nobody else reaps.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::Clock as _;
use rustix::process::{Pid, Signal, kill_process};

use super::{contained, is_possible};
use crate::harness::{Ended, Place};
use crate::process::{Process, Seen, eventually, running_for};
use crate::run::{item, place_of};

/// What platforms give a container between TERM and KILL.
const GRACE: Duration = Duration::from_secs(10);

/// Takes three seconds, whatever it is asked, with children in a session of their own and without a
/// parent that would wait for them.
const THREE_SECONDS: &str = r#"
drain_timeout = "9s"
[kinds.SEND]
command = ["sh", "-c", """
    trap '' TERM INT
    setsid sleep 60 &
    (sleep 60 &)
    touch here
    sleep 3
    echo '{}'"""]
"#;

/// The worker in its container.
struct Container {
    unshare: Process,
    /// The worker, by its number outside.
    first: Pid,
    /// The namespace, by the link that leads to it.
    namespace: PathBuf,
}

impl Container {
    fn start(place: &Place) -> Self {
        let unshare = Process::start(place, contained(place));
        unshare.until_said("Ctrl-C drains");
        let children = Seen::children_of(unshare.id());
        let [first] = children.as_slice() else {
            panic!("one child: {children:?}");
        };
        let link = fs::read_link(format!("/proc/{}/ns/pid", first.pid));
        Self {
            unshare,
            first: Pid::from_raw(first.pid).expect("a pid"),
            namespace: link.expect("a namespace"),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.first, signal).expect("a signal");
    }

    /// Runs a script beside the worker, as `docker exec` does.
    fn exec(&self, script: &str) {
        let first = self.first.to_string();
        let entered = Command::new("nsenter")
            .args(["-U", "--preserve-credentials", "-p", "-m", "-t", &first])
            .args(["sh", "-c", script])
            // What it leaves behind must not hold a pipe of ours.
            .stdout(Stdio::null())
            .status()
            .expect("nsenter");
        assert!(entered.success(), "{entered:?}");
    }

    /// What was handed to the worker or started by it, as far as it is not reaped.
    fn children(&self) -> Vec<Seen> {
        Seen::children_of(self.first)
    }

    fn spawner(&self) -> Option<Seen> {
        let mut children = self.children().into_iter();
        children.find(|child| child.name == "fence-spawner")
    }

    fn no_zombies(&self) -> bool {
        self.children().iter().all(|child| child.state != 'Z')
    }

    /// Waits for the end within the grace, and holds the namespace to be empty then.
    #[track_caller]
    fn ended(self) -> Ended {
        let begun = SystemClock.elapsed();
        let ended = self.unshare.ended();
        let took = SystemClock.elapsed().since(begun);
        assert!(took < GRACE * 4 / 5, "{took:?}: {}", ended.talk);
        let of_it = Seen::all().into_iter().filter(|one| {
            let namespace = fs::read_link(format!("/proc/{}/ns/pid", one.pid));
            namespace.is_ok_and(|namespace| namespace == self.namespace)
        });
        let left: Vec<Seen> = of_it.collect();
        assert!(left.is_empty(), "{left:?}");
        ended
    }
}

#[track_caller]
fn until_it_runs(place: &Place, container: &Container, id: &str) {
    let runs = eventually(|| place.path().join("here").exists() && running_for(id).len() >= 3);
    assert!(runs, "{}", container.unshare.talk());
}

#[test]
fn it_lets_the_item_finish_and_goes() {
    if !is_possible() {
        return;
    }
    for signal in [Signal::TERM, Signal::INT] {
        let place = place_of(THREE_SECONDS);
        let id = place.enqueue(&["SEND"]);
        let container = Container::start(&place);
        until_it_runs(&place, &container, &id);
        container.signal(signal);
        let ended = container.ended();
        assert_eq!(ended.code, 0, "{}", ended.talk);
        assert!(ended.talk.contains("draining"), "{}", ended.talk);
        let item = item(&place, &id);
        assert_eq!(
            (&item["status"], &item["attempts"]),
            (&"done".into(), &1.into()),
            "{item}"
        );
        assert_eq!(running_for(&id), Vec::<i32>::new());
    }
}

/// Had the item been waited for, it would be done.
#[test]
fn asked_twice_it_hands_back_at_once() {
    if !is_possible() {
        return;
    }
    let place = place_of(THREE_SECONDS);
    let id = place.enqueue(&["SEND"]);
    let container = Container::start(&place);
    until_it_runs(&place, &container, &id);
    container.signal(Signal::TERM);
    container.unshare.until_said("stopping a run");
    container.signal(Signal::TERM);
    let ended = container.ended();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let item = item(&place, &id);
    assert_eq!(
        (&item["status"], &item["attempts"]),
        (&"queued".into(), &0.into()),
        "{item}"
    );
    assert_eq!(running_for(&id), Vec::<i32>::new());
}

#[test]
fn it_reaps_the_orphans_of_others_and_its_own() {
    if !is_possible() {
        return;
    }
    let place = place_of("[kinds.SEND]\ncommand = [\"sh\", \"-c\", \"(sleep 60 &) ; echo '{}'\"]");
    let container = Container::start(&place);
    let done = |id: &str| item(&place, id)["status"] == "done";
    let first = place.enqueue(&["SEND"]);
    assert!(eventually(|| done(&first)), "{}", container.unshare.talk());

    let folder = place.path().display();
    container.exec(&format!(
        "for n in 1 2 3 4 5 6 7 8; do \
         sh -c 'until [ -e {folder}/go ]; do sleep 0.02; done' orphan & done"
    ));
    let orphans = || {
        container
            .children()
            .iter()
            .filter(|child| child.name == "sh")
            .count()
    };
    assert!(
        eventually(|| orphans() == 8),
        "handed to the worker: {:?}",
        container.children()
    );
    place.file("go", "");
    assert!(
        eventually(|| orphans() == 0 && container.no_zombies()),
        "not reaped: {:?}",
        container.children()
    );

    // The wardens of a spawner that was killed come here as well, and the next run gets another.
    let spawner = container.spawner().expect("a spawner");
    let spawner = Pid::from_raw(spawner.pid).expect("a pid");
    kill_process(spawner, Signal::KILL).expect("a signal");
    let second = place.enqueue(&["SEND"]);
    assert!(eventually(|| done(&second)), "{}", container.unshare.talk());
    let is_tidy = || container.no_zombies() && container.children().len() == 1;
    assert!(eventually(is_tidy), "{:?}", container.children());
    assert_ne!(
        container.spawner().map(|one| one.pid),
        Some(spawner.as_raw_nonzero().get())
    );

    container.signal(Signal::TERM);
    assert_eq!(container.ended().code, 0);
    for id in [first, second] {
        assert_eq!(running_for(&id), Vec::<i32>::new());
    }
}
