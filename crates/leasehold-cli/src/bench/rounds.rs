//! The same measurement several times, and the median of each of its figures.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use crate::failure::Failure;

/// What each round found, and the medians.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Rounds<T> {
    /// Figure by figure, so that no two need be of the same round. Series have none and are left empty.
    pub(super) median: T,
    pub(super) rounds: Vec<T>,
}

impl<T: Serialize + DeserializeOwned> Rounds<T> {
    /// `None` of no round.
    pub(super) fn of(rounds: Vec<T>) -> Result<Option<Self>, Failure> {
        if rounds.is_empty() {
            return Ok(None);
        }
        let figures = rounds
            .iter()
            .map(serde_json::to_value)
            .collect::<Result<Vec<Value>, _>>()
            .map_err(super::broke)?;
        let median = serde_json::from_value(middle(&figures)).map_err(super::broke)?;
        Ok(Some(Self { median, rounds }))
    }
}

/// Of documents of one shape.
fn middle(documents: &[Value]) -> Value {
    match documents.first() {
        Some(Value::Object(fields)) => {
            let of_field = |name: &String| {
                let values: Vec<Value> = documents
                    .iter()
                    .filter_map(|document| document.get(name))
                    .cloned()
                    .collect();
                (name.clone(), middle(&values))
            };
            Value::Object(fields.keys().map(of_field).collect::<Map<_, _>>())
        }
        Some(Value::Array(_)) => Value::Array(Vec::new()),
        Some(Value::String(text)) => Value::String(text.clone()),
        _ => middle_number(documents),
    }
}

/// What was not to be had in some rounds is the median of the others.
fn middle_number(values: &[Value]) -> Value {
    let mut numbers: Vec<&Number> = values.iter().filter_map(Value::as_number).collect();
    numbers.sort_by(|a, b| {
        a.as_f64()
            .unwrap_or_default()
            .total_cmp(&b.as_f64().unwrap_or_default())
    });
    let upper = numbers.get(numbers.len() / 2);
    let lower = numbers.get(numbers.len().saturating_sub(1) / 2);
    let (Some(lower), Some(upper)) = (lower, upper) else {
        return Value::Null;
    };
    if let (Some(lower), Some(upper)) = (lower.as_u64(), upper.as_u64()) {
        return u64::midpoint(lower, upper).into();
    }
    let halves =
        lower.as_f64().unwrap_or_default() / 2.0 + upper.as_f64().unwrap_or_default() / 2.0;
    halves.into()
}

#[cfg(test)]
mod tests;
