//! Which handler a request goes to: the parent reads what routing needs, and nothing else.
//!
//! The parent's schema is lenient: fields it does not name pass through to the handler, whose own
//! schema is strict. A request that no route takes is no malformed one: it fails under an error of the
//! consumer's own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use leasehold::{JsonObject, Kind};
use leasehold_fence::protocol::{
    Channel, ChildError, ErrorNameRefused, Level, MALFORMED_MESSAGE, RegisteredError,
    RegisteredErrors, UNKNOWN_ERROR, deliver,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The kind whose handler runs it.
    pub kind: Kind,
    /// How that handler is given it: decides what is too large for it.
    pub channel: Channel,
}

/// Why a request goes nowhere, told under that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unrouted {
    /// A registered name, or one of the worker's own.
    pub error: String,
    /// For people.
    pub message: String,
    /// How loudly it is logged.
    pub level: Level,
}

/// The routes of one consumer.
#[derive(Clone)]
pub struct Routes {
    errors: RegisteredErrors,
    select: Arc<Select>,
}

type Select = dyn Fn(&JsonObject) -> Result<Route, Refusal> + Send + Sync;

enum Refusal {
    /// The parent's schema does not fit.
    Schema(String),
    /// The consumer's own.
    Own { error: String, message: String },
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes")
            .field("errors", &self.errors)
            .finish_non_exhaustive()
    }
}

impl Routes {
    /// Routes by a request of the consumer's own type: `select` names the route, or the error under
    /// which the task fails and its message.
    pub fn typed<R: DeserializeOwned>(
        errors: RegisteredErrors,
        select: impl Fn(R) -> Result<Route, (String, String)> + Send + Sync + 'static,
    ) -> Self {
        let select = move |request: &JsonObject| {
            let request: R = serde_json::from_str(request.as_str())
                .map_err(|error| Refusal::Schema(without_values(&error)))?;
            select(request).map_err(|(error, message)| Refusal::Own { error, message })
        };
        Self {
            errors,
            select: Arc::new(select),
        }
    }

    /// Routes by the text in one field. What no value matches fails as `unsupported`.
    ///
    /// # Errors
    /// [`ErrorNameRefused`] if `unsupported` cannot be registered.
    pub fn by_field(
        field: &str,
        routes: BTreeMap<String, Route>,
        unsupported: &str,
        treated: RegisteredError,
    ) -> Result<Self, ErrorNameRefused> {
        let errors = RegisteredErrors::new([(unsupported, treated)])?;
        let (field, unsupported) = (field.to_owned(), unsupported.to_owned());
        let select = move |request: &JsonObject| {
            let fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(request.as_str())
                .map_err(|error| Refusal::Schema(without_values(&error)))?;
            let Some(value) = fields.get(&field) else {
                return Err(Refusal::Schema(format!("it has no field {field}")));
            };
            let value: String = serde_json::from_str(value.get()).unwrap_or_default();
            let value = value.trim();
            if value.is_empty() {
                let reason = format!("its field {field} is no text, or an empty one");
                return Err(Refusal::Schema(reason));
            }
            routes.get(value).cloned().ok_or_else(|| Refusal::Own {
                error: unsupported.clone(),
                message: format!("unsupported {field}: {}", shown(value)),
            })
        };
        Ok(Self {
            errors,
            select: Arc::new(select),
        })
    }

    /// Every request goes there.
    pub fn all_to(route: Route) -> Self {
        Self {
            errors: RegisteredErrors::default(),
            select: Arc::new(move |_| Ok(route.clone())),
        }
    }

    /// The route of a request, which its handler's channel can carry.
    ///
    /// # Errors
    /// [`Unrouted`]: nothing is started, and the task fails under that name.
    pub fn select(&self, request: &JsonObject) -> Result<Route, Unrouted> {
        let route = (self.select)(request).map_err(|refusal| self.told(refusal))?;
        match deliver(request.as_str().as_bytes(), route.channel) {
            Ok(_) => Ok(route),
            Err(refused) => {
                let error = ChildError::from(refused);
                Err(Unrouted {
                    error: error.name,
                    message: error.message,
                    level: error.level,
                })
            }
        }
    }

    fn told(&self, refusal: Refusal) -> Unrouted {
        match refusal {
            Refusal::Schema(message) => Unrouted {
                error: MALFORMED_MESSAGE.to_owned(),
                message,
                level: Level::Error,
            },
            Refusal::Own { error, message } => match self.errors.get(&error) {
                Some(registered) => Unrouted {
                    error,
                    message,
                    level: registered.level,
                },
                None => Unrouted {
                    message: format!("{error}: {message}"),
                    error: UNKNOWN_ERROR.to_owned(),
                    level: Level::Error,
                },
            },
        }
    }
}

/// A decoder's words may quote what it read, and that may be a secret.
fn without_values(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once('`') {
        // Such as "missing field `bucket`": a name of the schema's own.
        Some(_) if text.starts_with("missing field") => text,
        _ => format!(
            "it does not fit the request's schema (line {}, column {})",
            error.line(),
            error.column()
        ),
    }
}

/// The value that no route takes, as an error shows it.
fn shown(value: &str) -> String {
    /// Values that route are short words.
    const BYTES_MAX: usize = 64;
    leasehold_fence::text::clip(&leasehold_fence::text::escape(value.as_bytes()), BYTES_MAX)
}

#[cfg(test)]
mod tests;
