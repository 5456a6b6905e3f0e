//! The agent's protection endpoint: plain HTTP on a link-local address, and answers that must be read
//! whole, since a refusal may come with status 200.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use crate::calls::{Agent, AgentError, Protected};

/// Where the agent of this task listens.
#[derive(Clone)]
pub struct AgentEndpoint {
    host: String,
    port: u16,
    path: String,
}

/// An address that is none of an agent's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ECS_AGENT_URI is {given:?}, which is no http:// address: {reason}")]
pub struct EndpointRefused {
    given: String,
    reason: String,
}

/// The variable with the agent's address, which the platform sets.
const VARIABLE: &str = "ECS_AGENT_URI";

/// The agent itself gives up after four seconds and cuts its answer at five.
const PATIENCE: Duration = Duration::from_secs(6);

/// Answers are a few hundred bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

impl fmt::Debug for AgentEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The path names the task's credentials.
        f.debug_struct("AgentEndpoint")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl AgentEndpoint {
    /// The one that the environment names; `None` if it names none: this is not ECS.
    ///
    /// # Errors
    /// [`EndpointRefused`] if what it names is no address.
    pub fn from_environment() -> Result<Option<Self>, EndpointRefused> {
        match std::env::var(VARIABLE) {
            Ok(uri) if !uri.is_empty() => Self::parse(&uri).map(Some),
            _ => Ok(None),
        }
    }

    /// The agent at that address, such as `http://169.254.170.2/api/…`.
    ///
    /// # Errors
    /// [`EndpointRefused`].
    pub fn parse(uri: &str) -> Result<Self, EndpointRefused> {
        let refused = |reason: &str| EndpointRefused {
            given: uri.to_owned(),
            reason: reason.to_owned(),
        };
        let parsed: Uri = uri.parse().map_err(|_| refused("it cannot be read"))?;
        if parsed.scheme_str() != Some("http") {
            return Err(refused("it does not begin with http://"));
        }
        let host = parsed.host().ok_or_else(|| refused("it has no host"))?;
        Ok(Self {
            host: host.to_owned(),
            port: parsed.port_u16().unwrap_or(80),
            path: parsed.path().trim_end_matches('/').to_owned(),
        })
    }

    async fn put(&self, asked: &Asked) -> Result<Answer, AgentError> {
        let unknown = |reason: String| AgentError::Unknown { reason };
        let exchange = async {
            let body = serde_json::to_vec(asked).map_err(|error| unknown(error.to_string()))?;
            let request = Request::builder()
                .method(Method::PUT)
                .uri(format!("{}/task-protection/v1/state", self.path))
                .header(HOST, format!("{}:{}", self.host, self.port))
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| unknown(error.to_string()))?;
            // One connection for each: they are few, and the agent may have closed an old one.
            let stream = TcpStream::connect((self.host.as_str(), self.port))
                .await
                .map_err(|error| unknown(format!("the agent cannot be reached: {error}")))?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| unknown(error.to_string()))?;
            // The connection ends once its sender is dropped.
            let asking = async move {
                let answer = sender.send_request(request).await?;
                let status = answer.status();
                let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
                let body = body.await.map(http_body_util::Collected::to_bytes);
                Ok::<_, hyper::Error>((status, body.unwrap_or_default()))
            };
            let (answer, ()) = futures_util::future::join(asking, async {
                let _ = connection.await;
            })
            .await;
            let (status, body) = answer.map_err(|error| unknown(error.to_string()))?;
            read(status, &body)
        };
        tokio::time::timeout(PATIENCE, exchange)
            .await
            .unwrap_or_else(|_| Err(unknown(format!("no answer within {PATIENCE:?}"))))
    }
}

#[async_trait]
impl Agent for AgentEndpoint {
    async fn protect(&self, minutes: u32) -> Result<Protected, AgentError> {
        let asked = Asked {
            protection_enabled: true,
            expires_in_minutes: Some(minutes),
        };
        match self.put(&asked).await? {
            Answer {
                protection_enabled: true,
                expiration_date: Some(until),
                task_arn,
            } => Ok(Protected {
                until,
                task: task_arn,
            }),
            Answer {
                protection_enabled: true,
                ..
            } => Err(AgentError::Unknown {
                reason: "the answer has no date".to_owned(),
            }),
            Answer { .. } => Err(AgentError::Refused {
                reason: "the task stayed unprotected".to_owned(),
            }),
        }
    }

    async fn unprotect(&self) -> Result<(), AgentError> {
        let asked = Asked {
            protection_enabled: false,
            expires_in_minutes: None,
        };
        let answer = self.put(&asked).await?;
        if answer.protection_enabled {
            let reason = "the task stayed protected".to_owned();
            return Err(AgentError::Refused { reason });
        }
        Ok(())
    }
}

/// The agent refuses a body with fields it does not know.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    protection_enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_minutes: Option<u32>,
}

/// Agents of different ages say more or less; only what is needed is read.
#[derive(Deserialize)]
struct Body {
    protection: Option<Answer>,
    failure: Option<Failure>,
    error: Option<Error>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default)]
    protection_enabled: bool,
    expiration_date: Option<Timestamp>,
    #[serde(default)]
    task_arn: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Error {
    code: String,
}

/// What an answer says. Codes decide; messages are for people and differ between agents.
fn read(status: StatusCode, body: &[u8]) -> Result<Answer, AgentError> {
    let body: Option<Body> = serde_json::from_slice(body).ok();
    let (protection, failure, error) = match body {
        Some(body) => (body.protection, body.failure, body.error),
        None => (None, None, None),
    };
    let code = error.map(|error| error.code);
    let told = |otherwise: &str| {
        let code = code.clone().unwrap_or_else(|| otherwise.to_owned());
        format!("{code} ({})", status.as_u16())
    };
    if let Some(failure) = failure {
        let reason = failure.reason;
        return Err(AgentError::Refused { reason });
    }
    match (status, protection) {
        (StatusCode::OK, Some(protection)) => Ok(protection),
        (StatusCode::TOO_MANY_REQUESTS, _) => Err(AgentError::Throttled {
            reason: told("too many requests"),
        }),
        (status, _) if status.is_client_error() => {
            let reason = told("refused");
            Err(match code.as_deref() {
                Some("ThrottlingException") => AgentError::Throttled { reason },
                _ => AgentError::Refused { reason },
            })
        }
        (StatusCode::OK, None) => Err(AgentError::Unknown {
            reason: told("an answer that cannot be read"),
        }),
        _ => Err(AgentError::Unknown {
            reason: told("trouble of the agent's"),
        }),
    }
}

#[cfg(test)]
mod tests;
