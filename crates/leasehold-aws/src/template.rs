//! The state machine, the queue and the policies that go with a source's settings, as JSON to start
//! from.

use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::QueueAttributes;
use crate::settings::StepFunctionsSettings;

/// How a state should send its tasks so that a worker of these settings keeps its promises: heartbeats
/// that a lost worker misses, an end in any case, and a retry that matches both.
pub fn state_machine(
    settings: &StepFunctionsSettings,
    queue_url: &str,
    route_by: Option<&str>,
) -> Value {
    let mut body = json!({ "task_token.$": "$$.Task.Token" });
    if let (Some(field), Some(body)) = (route_by, body.as_object_mut()) {
        body.insert(format!("{field}.$"), json!(format!("$.{field}")));
    }
    let heartbeat = settings.lease();
    // Time to be begun, to run, and to be told.
    let whole = settings.message_processing_timeout * 2 + heartbeat;
    json!({
        "Comment": "A task of Leasehold. A message waits in the queue on its heartbeat's time: give \
                    HeartbeatSeconds more if tasks queue up.",
        "StartAt": "Work",
        "States": {
            "Work": {
                "Type": "Task",
                "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
                "Parameters": { "QueueUrl": queue_url, "MessageBody": body },
                "HeartbeatSeconds": heartbeat.as_secs().max(1),
                "TimeoutSeconds": whole.as_secs(),
                "Retry": [
                    {
                        // A worker that was lost or is going is no failure of the task's.
                        "ErrorEquals": ["States.Timeout", "States.HeartbeatTimeout", "WorkerStopping", "Released"],
                        "IntervalSeconds": 1,
                        "MaxAttempts": 10,
                        "BackoffRate": 1.5
                    },
                    {
                        "ErrorEquals": ["SubprocessCrashError"],
                        "IntervalSeconds": 30,
                        "MaxAttempts": 2,
                        "BackoffRate": 2.0
                    }
                ],
                "Catch": [{ "ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Failed" }],
                "End": true
            },
            "Failed": { "Type": "Fail", "ErrorPath": "$.error.Error", "CausePath": "$.error.Cause" }
        }
    })
}

/// Attributes of the queue.
pub fn queue(settings: &StepFunctionsSettings) -> Value {
    json!({
        "VisibilityTimeout": visibility_min().as_secs().to_string(),
        "ReceiveMessageWaitTimeSeconds": settings.poll_wait.as_secs().to_string(),
        "MessageRetentionPeriod": "345600"
    })
}

/// What the worker's task role may do.
pub fn worker_policy(queue_arn: &str) -> Value {
    json!({
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "sqs:ReceiveMessage",
                    "sqs:DeleteMessage",
                    "sqs:ChangeMessageVisibility",
                    "sqs:GetQueueAttributes"
                ],
                "Resource": queue_arn
            },
            {
                // Tokens name their task; these actions take no narrower resource.
                "Effect": "Allow",
                "Action": ["states:SendTaskSuccess", "states:SendTaskFailure", "states:SendTaskHeartbeat"],
                "Resource": "*"
            },
            {
                "Effect": "Allow",
                "Action": ["ecs:GetTaskProtection", "ecs:UpdateTaskProtection"],
                "Resource": "*"
            }
        ]
    })
}

/// What the state machine's role may do.
pub fn state_machine_policy(queue_arn: &str) -> Value {
    json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Effect": "Allow", "Action": "sqs:SendMessage", "Resource": queue_arn }
        ]
    })
}

/// A queue hides a message while it is picked up, and that may take three tries of each of three steps.
fn visibility_min() -> Duration {
    Duration::from_mins(1)
}

/// What of a queue's set-up does not go with the settings, each with what to do.
pub fn faults(settings: &StepFunctionsSettings, queue: &QueueAttributes) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let least = visibility_min();
    if queue.visibility < least {
        faults.push((
            format!(
                "the queue shows a message again after {} s, and picking one up may take {} s",
                queue.visibility.as_secs(),
                least.as_secs()
            ),
            format!("set its VisibilityTimeout to {} or more", least.as_secs()),
        ));
    }
    if queue.retention < settings.lease() {
        faults.push((
            format!(
                "the queue keeps messages for {} s only",
                queue.retention.as_secs()
            ),
            "set its MessageRetentionPeriod to a day or more".to_owned(),
        ));
    }
    if queue.deliveries_max.is_some_and(|count| count < 10) {
        faults.push((
            "a message that goes back to the queue a few times is moved to its queue for dead letters".to_owned(),
            "raise maxReceiveCount, or leave the policy out: tasks are retried by their state".to_owned(),
        ));
    }
    if queue.is_fifo {
        faults.push((
            "the queue is first-in-first-out, and a message is deleted when it is begun".to_owned(),
            "use a standard queue, or know that two messages of one group may run at once"
                .to_owned(),
        ));
    }
    faults
}

#[cfg(test)]
mod tests;
