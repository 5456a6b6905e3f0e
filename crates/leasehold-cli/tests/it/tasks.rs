//! Tasks of Step Functions: the settings, and whole executions on a stand-in of the services.

#[cfg(feature = "aws")]
mod real_process;

use crate::harness::Place;

const QUEUE: &str = "queue = \"https://sqs.eu-west-1.amazonaws.com/123456789012/tasks\"\n";
const KIND: &str = "[kinds.ATMOS]\ncommand = [\"true\"]\n";

fn refused(section: &str) -> String {
    let place = Place::new();
    place.file(
        "leasehold.toml",
        format!("{KIND}[step_functions]\n{section}"),
    );
    let ended = place.run(&["config", "check"]);
    assert_eq!(ended.code, 2, "{}", ended.talk);
    ended.talk
}

/// Each bad setting by its name, with what it must be.
#[test]
fn bad_settings_are_refused_by_name() {
    let rows = [
        (
            String::new(),
            "step_functions has no queue",
            "add its address",
        ),
        (
            "queue = \"tasks\"\n".into(),
            "step_functions.queue",
            "get-queue-url",
        ),
        (
            format!("{QUEUE}heartbeat_interval = \"500ms\"\n"),
            "heartbeat_interval",
            "between 1s",
        ),
        (
            format!("{QUEUE}capacity = 0\n"),
            "step_functions.capacity",
            "between 1 and",
        ),
        (
            format!("{QUEUE}protection = \"maybe\"\n"),
            "protection",
            "required",
        ),
        (
            format!("{QUEUE}protection_period = \"90s\"\n"),
            "protection_period",
            "whole minutes",
        ),
        (
            format!("{QUEUE}poll_wait = \"21s\"\n"),
            "poll_wait",
            "between 0ns and 20s",
        ),
        (
            format!("{QUEUE}poll_wait = \"20s\"\nstop_time = \"20s\"\n"),
            "poll_wait",
            "stop_time",
        ),
        (
            format!("{QUEUE}output_bytes_max = \"1MiB\"\n"),
            "output_bytes_max",
            "262144",
        ),
        (
            format!("{QUEUE}route_by = \"type\"\n"),
            "route_by and no routes",
            "routes = ",
        ),
        (
            format!("{QUEUE}routes = {{ a = \"ATMOS\" }}\n"),
            "routes and no route_by",
            "route_by = ",
        ),
        (
            format!("{QUEUE}route_by = \"type\"\nroutes = {{ a = \"VHS\" }}\n"),
            "step_functions.routes.a is VHS",
            "[kinds.VHS]",
        ),
        (
            format!(
                "{QUEUE}route_by = \"type\"\nroutes = {{ a = \"ATMOS\" }}\nunsupported = {{ error = \"States.Timeout\" }}\n"
            ),
            "States.",
            "choose another name",
        ),
        (
            format!("{QUEUE}heartbeat = \"15s\"\n"),
            "step_functions.heartbeat",
            "heartbeat_interval",
        ),
    ];
    for (section, what, remedy) in rows {
        let told = refused(&section);
        assert!(
            told.contains(what) && told.contains(remedy),
            "{section}\n{told}"
        );
    }
}

#[test]
fn what_holds_is_shown() {
    let place = Place::new();
    let section = format!("{KIND}[step_functions]\n{QUEUE}heartbeat_interval = \"10s\"\n");
    place.file("leasehold.toml", section);
    let shown = place.run(&["config", "show"]);
    assert_eq!(shown.code, 0, "{}", shown.talk);
    for line in [
        "step_functions.heartbeat_interval = \"10s\"",
        "step_functions.protection = \"required\"",
        "step_functions.capacity = 1",
    ] {
        assert!(shown.out.contains(line), "{}", shown.out);
    }
}

#[test]
fn the_template_goes_with_the_settings() {
    let place = Place::new();
    let section = format!("{KIND}[step_functions]\n{QUEUE}heartbeat_interval = \"10s\"\n");
    place.file("leasehold.toml", section);
    let told = place.json(&["step-functions", "template"]);
    let work = &told["state_machine"]["States"]["Work"];
    assert_eq!(work["HeartbeatSeconds"], 40);
    assert_eq!(
        work["Parameters"]["QueueUrl"],
        "https://sqs.eu-west-1.amazonaws.com/123456789012/tasks"
    );
    assert!(
        told["worker_policy"]
            .to_string()
            .contains("states:SendTaskHeartbeat")
    );
}

#[cfg(not(feature = "aws"))]
#[test]
fn a_build_without_the_services_says_so() {
    let place = Place::new();
    place.file("leasehold.toml", format!("{KIND}[step_functions]\n{QUEUE}"));
    let told = place.refused(2, &["run"]);
    assert!(told.contains("--features aws"), "{told}");
}
