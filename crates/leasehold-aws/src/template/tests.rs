use super::*;

#[test]
fn a_state_gives_a_worker_time_and_retries_a_lost_one() {
    let settings = StepFunctionsSettings::default();
    let machine = state_machine(&settings, "https://q", Some("asset_upload_type"));
    let work = &machine["States"]["Work"];
    assert_eq!(work["HeartbeatSeconds"], 60);
    assert!(work["TimeoutSeconds"].as_u64() > work["HeartbeatSeconds"].as_u64());
    let body = &work["Parameters"]["MessageBody"];
    assert_eq!(body["task_token.$"], "$$.Task.Token");
    assert_eq!(body["asset_upload_type.$"], "$.asset_upload_type");
    let retried = work["Retry"][0]["ErrorEquals"].to_string();
    for name in [
        "States.Timeout",
        "States.HeartbeatTimeout",
        "WorkerStopping",
    ] {
        assert!(retried.contains(name), "{retried}");
    }
}

#[test]
fn a_queue_is_held_against_the_settings() {
    let settings = StepFunctionsSettings::default();
    let mut given = QueueAttributes {
        visibility: Duration::from_mins(1),
        retention: Duration::from_hours(96),
        deliveries_max: None,
        is_fifo: false,
    };
    assert_eq!(faults(&settings, &given), []);
    given.visibility = Duration::from_secs(30);
    given.deliveries_max = Some(3);
    given.is_fifo = true;
    let found = faults(&settings, &given);
    assert_eq!(found.len(), 3);
    assert!(found[0].0.contains("30 s") && found[0].1.contains("60"));
}
