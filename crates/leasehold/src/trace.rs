//! Spans: one for each run and each enqueue.
//!
//! | span | kind | made | fields |
//! |---|---|---|---|
//! | `process` | consumer | for each run; a root of its own, linked to the item's `traceparent` | item, kind, lane, org, attempt, fence, `request_id`, `caused_by`, outcome, `error.type` |
//! | `send` | producer | for each enqueue; a child of the caller's span; its own header is stored on the items | kind, lane, items |
//!
//! A run is never a child of what caused it: an item may run days later, and more than once, and a trace
//! that waits for it would never be whole. Log lines written within a run carry its fields, and so both
//! its own request id and the one that caused it.
//!
//! Without the feature `otel` the spans are there for log lines alone, and an item's `traceparent` is
//! handed on as its producer wrote it.

use leasehold_core::store::work::Claimed;
use leasehold_core::{FailureCode, NewItem, OpContext, Outcome};
use tracing::Span;
use tracing::field::Empty;

use crate::worker::Ending;

/// The span of one run. A root: whatever the loop is doing is not its parent.
pub(crate) fn process(context: &OpContext, claimed: &Claimed) -> Span {
    let item = &claimed.item;
    let request = context.request();
    let span = tracing::info_span!(
        parent: None,
        "process",
        otel.name = Empty,
        otel.kind = "consumer",
        item = %item.id,
        kind = %item.kind,
        lane = %item.lane,
        org = %claimed.org_id,
        attempt = item.attempts,
        fence = item.claim_seq,
        request_id = %request.request_id,
        caused_by = Empty,
        outcome = Empty,
        error.type = Empty,
        otel.status_code = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    if let Some(cause) = request.caused_by {
        span.record("caused_by", tracing::field::display(cause));
    }
    otel::link(&span, item);
    span
}

/// Says on the run's span, the current one, how it came to its end.
pub(crate) fn ended(ending: &Ending) {
    let span = Span::current();
    if span.is_disabled() {
        return;
    }
    let failed = match ending {
        Ending::Outcome(Outcome::Failed { failure, .. }) => Some(failure.code.as_str()),
        Ending::Outcome(Outcome::Refused { .. }) => Some(FailureCode::REFUSED),
        _ => None,
    };
    if let Some(code) = failed {
        span.record("error.type", code);
        span.record("otel.status_code", "ERROR");
    }
    span.record("outcome", outcome_of(ending));
}

const fn outcome_of(ending: &Ending) -> &'static str {
    match ending {
        Ending::Outcome(Outcome::Done { .. }) => "done",
        Ending::Outcome(Outcome::Failed { .. }) => "failed",
        Ending::Outcome(Outcome::Parked { .. }) => "parked",
        Ending::Outcome(Outcome::Refused { .. }) => "refused",
        Ending::Outcome(Outcome::Released { .. }) => "released",
        Ending::Killed => "killed",
        Ending::Unbegun => "unbegun",
    }
}

/// The span of one enqueue, of `count` items of which this is the first.
pub(crate) fn send(first: Option<&NewItem>, count: usize) -> Span {
    let Some(first) = first else {
        return Span::none();
    };
    tracing::info_span!(
        "send",
        otel.name = %format_args!("send {}", first.lane),
        otel.kind = "producer",
        kind = %first.kind,
        lane = %first.lane,
        items = count,
    )
}

/// The W3C header of the span, if anybody traces it.
pub(crate) fn header_of(span: &Span) -> Option<String> {
    otel::header_of(span)
}

#[cfg(feature = "otel")]
mod otel {
    use leasehold_core::WorkItem;
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    };
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt as _;

    pub(super) fn link(span: &Span, item: &WorkItem) {
        span.record("otel.name", format!("process {} {}", item.lane, item.kind));
        if let Some(cause) = item.traceparent.as_deref().and_then(parse) {
            span.add_link(cause);
        }
    }

    pub(super) fn header_of(span: &Span) -> Option<String> {
        let context = span.context();
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| {
            let flags = span.trace_flags().to_u8();
            format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id())
        })
    }

    /// The span that a header names. None for one that breaks the rule: whoever wrote it, the run goes on.
    fn parse(header: &str) -> Option<SpanContext> {
        let mut parts = header.split('-');
        let (_version, trace, span, flags) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(u8::from_str_radix(flags, 16).ok()?),
            true,
            TraceState::default(),
        );
        context.is_valid().then_some(context)
    }
}

#[cfg(not(feature = "otel"))]
mod otel {
    use leasehold_core::WorkItem;
    use tracing::Span;

    pub(super) const fn link(_: &Span, _: &WorkItem) {}

    pub(super) const fn header_of(_: &Span) -> Option<String> {
        None
    }
}
