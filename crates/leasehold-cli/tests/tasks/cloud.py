"""What a case asks of the services, one call each; answers are one line of JSON.

usage: cloud.py setup NAME HEARTBEAT_SECONDS | start MACHINE INPUT | wait EXECUTION SECONDS | stop EXECUTION
"""
import json
import sys
import time
import uuid

import boto3

ROLE = "arn:aws:iam::123456789012:role/rig"


def setup(name, heartbeat):
    queue = boto3.client("sqs").create_queue(
        QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    work = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {
            "QueueUrl": queue,
            "MessageBody": {
                "task_token.$": "$$.Task.Token",
                "asset_upload_type.$": "$.asset_upload_type",
                "bucket.$": "$.bucket",
                "key.$": "$.key",
            },
        },
        "HeartbeatSeconds": int(heartbeat),
        "TimeoutSeconds": 120,
        "Retry": [{
            "ErrorEquals": ["States.Timeout", "States.HeartbeatTimeout", "WorkerStopping"],
            "IntervalSeconds": 1, "MaxAttempts": 3, "BackoffRate": 1.0,
        }],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
        "End": True,
    }
    definition = {"StartAt": "Work", "States": {"Work": work, "Caught": {"Type": "Pass", "End": True}}}
    machine = boto3.client("stepfunctions").create_state_machine(
        name=name, definition=json.dumps(definition), roleArn=ROLE)["stateMachineArn"]
    return {"queue": queue, "machine": machine}


def start(machine, text):
    answer = boto3.client("stepfunctions").start_execution(
        stateMachineArn=machine, name=str(uuid.uuid4()), input=text)
    return {"execution": answer["executionArn"]}


def wait(execution, seconds):
    service = boto3.client("stepfunctions")
    until = time.monotonic() + float(seconds)
    while True:
        answer = service.describe_execution(executionArn=execution)
        if answer["status"] != "RUNNING" or time.monotonic() > until:
            return {key: answer.get(key) for key in ("status", "output", "error", "cause")}
        time.sleep(0.1)


def stop(execution):
    boto3.client("stepfunctions").stop_execution(executionArn=execution)
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
