use super::*;

fn kind(answer: &Result<Answer, AgentError>) -> String {
    match answer {
        Ok(answer) => format!("answer {}", answer.protection_enabled),
        Err(AgentError::Refused { reason }) => format!("refused {reason}"),
        Err(AgentError::Throttled { reason }) => format!("throttled {reason}"),
        Err(AgentError::Unknown { reason }) => format!("unknown {reason}"),
    }
}

/// SOURCE-1: each answer of the agent and what is made of it.
#[test]
fn every_answer_of_the_agent() {
    let rows: [(u16, &str, &str); 16] = [
        (
            200,
            r#"{"protection":{"ExpirationDate":"2026-11-30T16:00:00Z","ProtectionEnabled":true,"TaskArn":"arn:1"}}"#,
            "answer true",
        ),
        (
            200,
            r#"{"requestID":"r","protection":{"ExpirationDate":"2026-11-30T16:00:00Z","ProtectionEnabled":true,"TaskArn":"arn:1","New":[1]},"failure":null}"#,
            "answer true",
        ),
        (
            200,
            r#"{"protection":{"ExpirationDate":null,"ProtectionEnabled":false,"TaskArn":"arn:1"}}"#,
            "answer false",
        ),
        (
            200,
            r#"{"failure":{"Arn":"a","Reason":"DEPLOYMENT_BLOCKED","Detail":null}}"#,
            "refused DEPLOYMENT_BLOCKED",
        ),
        (
            200,
            r#"{"failure":{"Arn":"a","Reason":"TASK_NOT_VALID","Detail":"text"}}"#,
            "refused TASK_NOT_VALID",
        ),
        (
            400,
            r#"{"requestID":"r","error":{"Arn":"a","Code":"AccessDeniedException","Message":"m"}}"#,
            "refused AccessDeniedException (400)",
        ),
        (
            400,
            r#"{"requestID":"r","error":{"Code":"ThrottlingException","Message":"Rate exceeded"}}"#,
            "throttled ThrottlingException (400)",
        ),
        (
            400,
            r#"{"error":{"Code":"InvalidParameterException","Message":"m"}}"#,
            "refused InvalidParameterException (400)",
        ),
        (
            403,
            r#"{"error":{"Arn":"a","Code":"AccessDeniedException","Message":"m"}}"#,
            "refused AccessDeniedException (403)",
        ),
        (
            404,
            r#"{"error":{"Code":"ResourceNotFoundException","Message":"m"}}"#,
            "refused ResourceNotFoundException (404)",
        ),
        (
            429,
            "Too many requests",
            "throttled too many requests (429)",
        ),
        (
            500,
            r#"{"error":{"Code":"ServerException"}}"#,
            "unknown ServerException (500)",
        ),
        (
            504,
            r#"{"error":{"Arn":"a","Code":"RequestCanceled","Message":"Timed out"}}"#,
            "unknown RequestCanceled (504)",
        ),
        (
            200,
            "not json",
            "unknown an answer that cannot be read (200)",
        ),
        (200, "{}", "unknown an answer that cannot be read (200)"),
        (302, "", "unknown trouble of the agent's (302)"),
    ];
    for (status, body, expected) in rows {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(kind(&read(status, body.as_bytes())), expected, "{body}");
    }
}

#[test]
fn addresses() {
    let agent = AgentEndpoint::parse("http://169.254.170.2/api/secret-id/").unwrap();
    assert_eq!((agent.port, agent.path.as_str()), (80, "/api/secret-id"));
    assert!(!format!("{agent:?}").contains("secret-id"));
    for wrong in ["https://x/api", "169.254.170.2", "http://", "file:///x"] {
        assert!(AgentEndpoint::parse(wrong).is_err(), "{wrong}");
    }
}
