use super::*;

#[test]
fn codes_of_tasks() {
    for code in [
        "TaskTimedOut",
        "TaskDoesNotExist",
        "InvalidToken",
        "com.amazonaws.sfn#TaskTimedOut",
    ] {
        assert!(
            matches!(TaskError::of_code(code), TaskError::Stale { .. }),
            "{code}"
        );
    }
    for code in ["InvalidOutput", "ValidationException"] {
        assert!(
            matches!(TaskError::of_code(code), TaskError::Refused { .. }),
            "{code}"
        );
    }
    // About credentials, keys and rates: none of them says that the task is over.
    for code in [
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "ThrottlingException",
        "AccessDeniedException",
        "KmsThrottlingException",
        "InvalidTokenX",
        "NotTaskTimedOut",
        "Something new",
    ] {
        assert!(
            matches!(TaskError::of_code(code), TaskError::Busy { .. }),
            "{code}"
        );
    }
    assert!(matches!(
        TaskError::of_code("InternalFailure"),
        TaskError::Unknown { .. }
    ));
}

#[test]
fn codes_of_queues() {
    for code in ["ReceiptHandleIsInvalid", "InvalidParameterValue"] {
        assert!(
            matches!(QueueError::of_code(code), QueueError::NotOurs { .. }),
            "{code}"
        );
    }
    for code in [
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "AccessDenied",
        "com.amazonaws.sqs#QueueDoesNotExist",
    ] {
        assert!(
            matches!(QueueError::of_code(code), QueueError::Unusable { .. }),
            "{code}"
        );
    }
    for code in [
        "RequestThrottled",
        "OverLimit",
        "KmsThrottled",
        "ExpiredToken",
    ] {
        assert!(
            matches!(QueueError::of_code(code), QueueError::Busy { .. }),
            "{code}"
        );
    }
}

#[test]
fn a_message_shows_no_body_and_no_receipt() {
    let message = Message {
        id: "m1".to_owned(),
        receipt: Receipt("handle".to_owned()),
        body: "{\"task_token\": \"secret\"}".to_owned(),
        deliveries: 1,
    };
    let shown = format!("{message:?}");
    assert!(shown.contains("m1") && !shown.contains("secret"), "{shown}");
}
