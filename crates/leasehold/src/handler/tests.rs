use std::error::Error;

use leasehold_core::{JsonError, NewItem, RequestContext, RequestId};

use super::*;
use crate::tenancy::SingleTenant;

fn failure(error: impl Into<HandlerError> + Send) -> (Failure, Option<Duration>) {
    match Err::<(), _>(error).into_outcome() {
        Outcome::Failed {
            failure,
            retry_after,
        } => (failure, retry_after),
        other => panic!("{other:?}"),
    }
}

#[derive(Debug)]
struct Layer(&'static str, Option<Box<Layer>>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|inner| inner as &dyn Error)
    }
}

#[test]
fn nothing_and_an_outcome_are_what_they_say() {
    assert_eq!(().into_outcome(), Outcome::done());
    let parked = Outcome::Parked {
        reason: "wait".into(),
        resume_after: Duration::from_secs(1),
    };
    assert_eq!(parked.clone().into_outcome(), parked);
    assert_eq!(Ok::<_, HandlerError>(parked.clone()).into_outcome(), parked);
    assert_eq!(Ok::<_, HandlerError>(()).into_outcome(), Outcome::done());
}

#[test]
fn any_error_becomes_a_retryable_failure_with_its_causes() {
    let inner = Layer("connection refused", None);
    let outer = Layer("the bank did not answer", Some(Box::new(inner)));
    let (failure, retry_after) = failure(outer);
    assert_eq!(failure.code.as_str(), FailureCode::HANDLER_ERROR);
    assert_eq!(
        failure.message.as_str(),
        "the bank did not answer: connection refused"
    );
    assert!(failure.retryable);
    assert_eq!(retry_after, None);
}

#[test]
fn a_text_is_an_error_too() {
    let (failure, _) = failure("no luck");
    assert_eq!(failure.message.as_str(), "no luck");
}

#[test]
fn the_question_mark_takes_any_error() {
    fn parse(text: &str) -> Result<u32, HandlerError> {
        Ok(text.parse::<u32>()?)
    }
    let (failure, _) = failure(parse("seven").unwrap_err());
    assert_eq!(failure.message.as_str(), "invalid digit found in string");
}

#[test]
fn an_error_says_how_it_is_to_be_treated() {
    let error = HandlerError::new("7")
        .with_code("NoSuchCustomer")
        .retry_after(Duration::from_secs(5))
        .for_good();
    let (failure, retry_after) = failure(error);
    assert_eq!(failure.code.as_str(), "NoSuchCustomer");
    assert!(!failure.retryable);
    assert_eq!(retry_after, Some(Duration::from_secs(5)));
}

/// G14 in process: what the worker reports under is not for handlers to take.
#[test]
fn a_code_of_leaseholds_own_or_no_code_at_all_is_replaced() {
    let no_codes = ["", "no spaces", "7up", "ü", "x\0"];
    let too_long = "x".repeat(65);
    let taken = FailureCode::RESERVED.iter().copied();
    for code in taken.chain(no_codes).chain([too_long.as_str()]) {
        let (failure, _) = failure(HandlerError::new("m").with_code(code));
        assert_eq!(
            failure.code.as_str(),
            FailureCode::HANDLER_ERROR,
            "{code:?}"
        );
    }
}

#[test]
fn a_long_message_is_cut_on_a_character_boundary() {
    let (failure, _) = failure(HandlerError::new("€".repeat(ShortText::BYTES_MAX)));
    let message = failure.message.as_str();
    assert!(message.len() <= ShortText::BYTES_MAX);
    assert!(message.ends_with("… [cut]"));
}

#[test]
fn a_result_must_be_an_object() {
    #[derive(serde::Serialize)]
    struct Answer {
        sum: u32,
    }
    let kept = Json(Answer { sum: 7 }).into_outcome();
    let result = JsonObject::parse(r#"{"sum":7}"#).unwrap();
    assert_eq!(
        kept,
        Outcome::Done {
            result: Some(result)
        }
    );
    let Outcome::Failed { failure, .. } = Json([1, 2]).into_outcome() else {
        panic!("a list was kept");
    };
    assert_eq!(failure.code.as_str(), FailureCode::RESULT_INVALID);
    assert!(
        !failure.retryable,
        "it would be no object the next time either"
    );
    assert_eq!(
        failure.message.as_str(),
        JsonError::NotAnObject("a list").to_string()
    );
}

#[tokio::test]
async fn a_run_for_a_test_is_whole() {
    let now = jiff::Timestamp::constant(1_767_225_600, 0);
    let kind = leasehold_core::Kind::parse("SEND_INVOICE").unwrap();
    let mut item = NewItem::new(kind, JsonObject::empty(), now).into_row(now);
    item.attempts = 2;
    item.claim_seq = 9;
    let app = leasehold_core::App {
        kind: leasehold_core::AppKind::Worker,
        version: "test".into(),
    };
    let request = RequestContext::new(RequestId::mint(), app);
    let context = SingleTenant::owner_context(&request).unwrap();
    let run = Run::for_test(context, item.clone());
    assert_eq!((run.attempt(), run.fence()), (2, 9));
    assert_eq!(run.item(), &item);
    run.progress(50, "half");
    assert!(!run.is_cancelled());
    run.cancellation().cancel();
    run.cancelled().await;
    assert!(run.is_cancelled());
    let shown = format!("{run:?}");
    assert!(shown.contains("SEND_INVOICE"), "{shown}");
    assert!(!shown.contains("payload"), "{shown}");
}
