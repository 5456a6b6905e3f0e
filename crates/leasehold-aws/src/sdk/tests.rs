use super::*;

#[test]
fn a_queues_address_names_its_region() {
    let region = |url| region_of(url).map(str::to_owned);
    let whole = "https://sqs.eu-west-1.amazonaws.com/123456789012/tasks";
    assert_eq!(region(whole).as_deref(), Some("eu-west-1"));
    let china = "https://sqs.cn-north-1.amazonaws.com.cn/1/q";
    assert_eq!(region(china).as_deref(), Some("cn-north-1"));
    for other in [
        "http://localhost:4566/1/q",
        "tasks",
        "https://example.com/sqs.x.amazonaws.com",
    ] {
        assert_eq!(region(other), None, "{other}");
    }
}

#[test]
fn attributes_are_read_as_the_service_writes_them() {
    let all = HashMap::from([
        (QueueAttributeName::VisibilityTimeout, "30".to_owned()),
        (
            QueueAttributeName::MessageRetentionPeriod,
            "345600".to_owned(),
        ),
        (
            QueueAttributeName::RedrivePolicy,
            "{\"deadLetterTargetArn\":\"arn\",\"maxReceiveCount\":\"5\"}".to_owned(),
        ),
    ]);
    let read = attributes(&all);
    assert_eq!(read.visibility, Duration::from_secs(30));
    assert_eq!(read.retention, Duration::from_hours(96));
    assert_eq!((read.deliveries_max, read.is_fifo), (Some(5), false));
}
