//! The real clients: the AWS SDK behind the two traits, with a limit on every call and no retries of
//! its own.
//!
//! Retries are this crate's: whoever asks a second time has to know that there was a first, since a
//! report whose answer was lost is answered as stale.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_sfn::config::retry::RetryConfig;
use aws_sdk_sfn::config::timeout::TimeoutConfig;
use aws_sdk_sfn::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use crate::calls::{Message, Queue, QueueAttributes, QueueError, Receipt, TaskError, Tasks};
use crate::token::TaskToken;

/// Clients of one queue and of the tasks of its region. Cheap to clone.
#[derive(Clone)]
pub struct Connection {
    url: String,
    polls: aws_sdk_sqs::Client,
    queue: aws_sdk_sqs::Client,
    tasks: aws_sdk_sfn::Client,
}

/// Why there are no clients.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotConnected {
    /// Nothing says in which region the queue is.
    #[error(
        "the region of the queue is not known: set AWS_REGION, or give the queue's whole address, such as \
         https://sqs.eu-west-1.amazonaws.com/123456789012/tasks"
    )]
    NoRegion,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// A call ends by then; whoever made it asks again.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// To a service of the same region.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

impl Connection {
    /// Clients with the credentials, region and endpoint that the environment names, as every AWS tool
    /// reads it. Nothing is called yet.
    ///
    /// # Errors
    /// [`NotConnected`].
    pub async fn new(queue_url: &str, poll_wait: Duration) -> Result<Self, NotConnected> {
        let http = Builder::new()
            .tls_provider(Provider::Rustls(CryptoMode::Ring))
            .build_https();
        let mut loader = aws_config::defaults(BehaviorVersion::latest())
            .http_client(http)
            .retry_config(RetryConfig::disabled());
        // The queue's own region counts: its tasks' tokens are of that region, too.
        if let Some(region) = region_of(queue_url) {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let config = loader.load().await;
        if config.region().is_none() {
            return Err(NotConnected::NoRegion);
        }
        Ok(Self {
            url: queue_url.to_owned(),
            polls: sqs(&config, poll_wait + CALL_LIMIT),
            queue: sqs(&config, CALL_LIMIT),
            tasks: aws_sdk_sfn::Client::from_conf(
                aws_sdk_sfn::config::Builder::from(&config)
                    .timeout_config(limit(CALL_LIMIT))
                    .build(),
            ),
        })
    }
}

fn sqs(config: &SdkConfig, call_limit: Duration) -> aws_sdk_sqs::Client {
    let config = aws_sdk_sqs::config::Builder::from(config)
        .timeout_config(limit(call_limit))
        .build();
    aws_sdk_sqs::Client::from_conf(config)
}

fn limit(call: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT_LIMIT)
        .operation_attempt_timeout(call)
        .operation_timeout(call)
        .build()
}

/// Of an address such as `https://sqs.eu-west-1.amazonaws.com/…`.
fn region_of(queue_url: &str) -> Option<&str> {
    let host = queue_url.split_once("://")?.1.split('/').next()?;
    let (service, rest) = host.split_once('.')?;
    let (region, rest) = rest.split_once('.')?;
    (service == "sqs" && rest.starts_with("amazonaws.")).then_some(region)
}

/// The service's code, or what was seen in place of an answer. Never what was sent.
fn code_of<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> Result<String, String> {
    if let SdkError::ServiceError(error) = error
        && let Some(code) = error.err().code()
    {
        return Ok(code.to_owned());
    }
    Err(match error {
        SdkError::ConstructionFailure(_) => "the call could not be made".to_owned(),
        SdkError::TimeoutError(_) => "no answer in time".to_owned(),
        SdkError::DispatchFailure(failure) => match failure.as_connector_error() {
            Some(error) => format!("not reached: {error}"),
            None => "not reached".to_owned(),
        },
        _ => "an answer that cannot be read".to_owned(),
    })
}

fn queue_error<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> QueueError {
    match code_of(error) {
        Ok(code) => QueueError::of_code(&code),
        Err(reason) => QueueError::Unknown { reason },
    }
}

fn task_error<E: ProvideErrorMetadata, R>(error: &SdkError<E, R>) -> TaskError {
    match code_of(error) {
        Ok(code) => TaskError::of_code(&code),
        Err(reason) => TaskError::Unknown { reason },
    }
}

#[async_trait]
impl Queue for Connection {
    async fn receive(&self, count: u32, wait: Duration) -> Result<Vec<Message>, QueueError> {
        let received = self
            .polls
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(whole(count))
            .wait_time_seconds(i32::try_from(wait.as_secs()).unwrap_or(i32::MAX))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .send()
            .await
            .map_err(|error| queue_error(&error))?;
        let messages = received.messages.unwrap_or_default().into_iter();
        Ok(messages.filter_map(message).collect())
    }

    async fn delete(&self, receipt: &Receipt) -> Result<(), QueueError> {
        let call = self.queue.delete_message().queue_url(&self.url);
        let done = call.receipt_handle(&receipt.0).send().await;
        done.map(drop).map_err(|error| queue_error(&error))
    }

    async fn release(&self, receipt: &Receipt) -> Result<(), QueueError> {
        let call = self.queue.change_message_visibility().queue_url(&self.url);
        let call = call.receipt_handle(&receipt.0).visibility_timeout(0);
        let done = call.send().await;
        done.map(drop).map_err(|error| queue_error(&error))
    }

    async fn attributes(&self) -> Result<QueueAttributes, QueueError> {
        let call = self.queue.get_queue_attributes().queue_url(&self.url);
        let answer = call
            .attribute_names(QueueAttributeName::All)
            .send()
            .await
            .map_err(|error| queue_error(&error))?;
        Ok(attributes(&answer.attributes.unwrap_or_default()))
    }
}

#[async_trait]
impl Tasks for Connection {
    async fn heartbeat(&self, token: &TaskToken) -> Result<(), TaskError> {
        let call = self.tasks.send_task_heartbeat().task_token(token.expose());
        let done = call.send().await;
        done.map(drop).map_err(|error| task_error(&error))
    }

    async fn succeed(&self, token: &TaskToken, output: &str) -> Result<(), TaskError> {
        let call = self.tasks.send_task_success().task_token(token.expose());
        let done = call.output(output).send().await;
        done.map(drop).map_err(|error| task_error(&error))
    }

    async fn fail(&self, token: &TaskToken, error: &str, cause: &str) -> Result<(), TaskError> {
        let call = self.tasks.send_task_failure().task_token(token.expose());
        let done = call.error(error).cause(cause).send().await;
        done.map(drop).map_err(|error| task_error(&error))
    }
}

fn whole(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// One without a receipt could be neither deleted nor released.
fn message(message: aws_sdk_sqs::types::Message) -> Option<Message> {
    let counted = message
        .attributes
        .as_ref()
        .and_then(|all| all.get(&MessageSystemAttributeName::ApproximateReceiveCount));
    Some(Message {
        deliveries: counted.and_then(|count| count.parse().ok()).unwrap_or(1),
        id: message.message_id.unwrap_or_default(),
        receipt: Receipt(message.receipt_handle?),
        body: message.body.unwrap_or_default(),
    })
}

fn attributes(all: &HashMap<QueueAttributeName, String>) -> QueueAttributes {
    let seconds = |name| {
        let text: Option<&String> = all.get(&name);
        Duration::from_secs(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    let redrive: Option<serde_json::Value> = all
        .get(&QueueAttributeName::RedrivePolicy)
        .and_then(|policy| serde_json::from_str(policy).ok());
    let deliveries_max = redrive.and_then(|policy| {
        let count = policy.get("maxReceiveCount")?;
        let text = count.as_str().map(str::to_owned);
        text.unwrap_or_else(|| count.to_string()).parse().ok()
    });
    QueueAttributes {
        visibility: seconds(QueueAttributeName::VisibilityTimeout),
        retention: seconds(QueueAttributeName::MessageRetentionPeriod),
        deliveries_max,
        is_fifo: all
            .get(&QueueAttributeName::FifoQueue)
            .is_some_and(|text| text == "true"),
    }
}

#[cfg(test)]
mod tests;
