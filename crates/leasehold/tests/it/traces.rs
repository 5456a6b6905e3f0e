//! Spans: a run is linked to its cause and never its child, and log lines within it name both requests.

use std::io::Write;
use std::sync::{Arc, Mutex};

use leasehold::{Client, Run, Status};
use leasehold_testkit::probe::Journal;
use opentelemetry::trace::{SpanId, SpanKind, Status as SpanStatus, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::harness::{Job, Rig, inserted, jobs, settings};

const CAUSE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// What was traced and logged on this thread, which the whole case runs on.
struct Seen {
    spans: InMemorySpanExporter,
    lines: Lines,
    _while: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Seen {
    fn begin() -> Self {
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let lines = Lines::default();
        let writer = lines.clone();
        let told = tracing_subscriber::fmt::layer()
            .json()
            .with_writer(move || writer.clone());
        let traced = tracing_opentelemetry::layer().with_tracer(provider.tracer("case"));
        let subscriber = tracing_subscriber::registry().with(told).with(traced);
        Self {
            spans,
            lines,
            _while: tracing::subscriber::set_default(subscriber),
        }
    }

    fn spans(&self, name: &str) -> Vec<SpanData> {
        let spans = self.spans.get_finished_spans().unwrap();
        let named = spans.into_iter().filter(|span| span.name.starts_with(name));
        named.collect()
    }

    fn line(&self, message: &str) -> serde_json::Value {
        let lines = self.lines.0.lock().unwrap();
        let lines = String::from_utf8(lines.clone()).unwrap();
        let line = lines.lines().find(|line| line.contains(message)).unwrap();
        serde_json::from_str(line).unwrap()
    }
}

fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|one| one.key.as_str() == key);
    found.map(|one| one.value.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_run_is_linked_to_its_cause_and_is_no_child_of_it() {
    let seen = Seen::begin();
    let rig = Rig::new();
    let headers = Journal::new();
    let handler = {
        let headers = headers.clone();
        move |_: Job, run: Run| {
            headers.note(run.context().request().traceparent.clone());
            tracing::info!("within the run");
            async {}
        }
    };
    let caused = rig.client.enqueue(&Job { n: 1 }).traceparent(CAUSE).await;
    let caused = inserted(caused.unwrap());
    let worker = rig.start(jobs(handler), settings());
    let item = rig.until_status(caused, Status::Done).await;
    worker.stop().await;

    let runs = seen.spans("process default JOB");
    let [run] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    assert_eq!(run.span_kind, SpanKind::Consumer);
    assert_eq!(run.parent_span_id, SpanId::INVALID);
    let [link] = run.links.links.as_slice() else {
        panic!("{:?}", run.links);
    };
    let (trace, span) = (link.span_context.trace_id(), link.span_context.span_id());
    assert_eq!(format!("00-{trace}-{span}-01"), CAUSE);
    assert_ne!(run.span_context.trace_id(), trace);
    assert_eq!(attribute(run, "outcome").as_deref(), Some("done"));
    assert_eq!(attribute(run, "item"), Some(caused.to_string()));
    // What the handler asks of others, and what it enqueues, belongs to the run's own trace.
    let trace = run.span_context.trace_id();
    let own = format!("00-{trace}-{}-01", run.span_context.span_id());
    assert_eq!(headers.entries(), [Some(own)]);

    let line = seen.line("within the run");
    let fields = &line["span"];
    assert_eq!(fields["caused_by"], item.request_id.to_string());
    let request = fields["request_id"].as_str().unwrap();
    assert_ne!(request, item.request_id.to_string());
    assert_eq!(attribute(run, "request_id").as_deref(), Some(request));
}

#[tokio::test(start_paused = true)]
async fn an_enqueue_leaves_its_own_span_on_the_item_and_a_run_without_cause_has_no_link() {
    let seen = Seen::begin();
    let rig = Rig::new();
    let inner: Client = rig.client.clone();
    let handler = move |job: Job, _: Run| {
        let client = inner.clone();
        async move {
            if job.n == 1 {
                client.enqueue(&Job { n: 2 }).await.unwrap();
            }
        }
    };
    let first = rig.enqueue(&Job { n: 1 }).await;
    let bare = rig.client.typed(&Job { n: 3 }).unwrap();
    // As another producer wrote it, which traces nothing.
    let org = leasehold::core::OrgId::SINGLE;
    let bare_id = bare.id;
    rig.stores.work.enqueue(org, vec![bare]).await.unwrap();
    let worker = rig.start(jobs(handler), settings());
    rig.until_status(first, Status::Done).await;
    rig.until_status(bare_id, Status::Done).await;
    let all_done = async || (seen.spans("process").len() == 3).then_some(());
    crate::harness::until(all_done).await;
    worker.stop().await;

    let runs = seen.spans("process");
    let run_of = |id: String| {
        let found = runs
            .iter()
            .find(|run| attribute(run, "item") == Some(id.clone()));
        found.unwrap().clone()
    };
    let sends = seen.spans("send default");
    let [outer, inner] = sends.as_slice() else {
        panic!("{sends:?}");
    };
    assert_eq!(outer.span_kind, SpanKind::Producer);
    let first = run_of(first.to_string());
    let linked = |run: &SpanData| {
        let links = run.links.links.iter();
        links
            .map(|link| link.span_context.span_id())
            .collect::<Vec<_>>()
    };
    assert_eq!(linked(&first), [outer.span_context.span_id()]);
    // The second was enqueued within the first's run: in its trace, and linked to it through the item.
    assert_eq!(inner.span_context.trace_id(), first.span_context.trace_id());
    assert_eq!(inner.parent_span_id, first.span_context.span_id());
    let bare = run_of(bare_id.to_string());
    assert!(linked(&bare).is_empty());
    assert_eq!(attribute(&bare, "caused_by"), None);
    let second = runs
        .iter()
        .find(|run| linked(run) == [inner.span_context.span_id()]);
    assert!(second.is_some(), "{runs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_is_an_error_and_a_run_that_is_parked_is_none() {
    let seen = Seen::begin();
    let rig = Rig::new();
    let handler = |job: Job, _: Run| async move {
        if job.n == 1 {
            return leasehold::Outcome::failed(leasehold::Failure::own(
                leasehold::FailureCode::HANDLER_ERROR,
                "no",
            ));
        }
        leasehold::Outcome::Parked {
            reason: "not yet".into(),
            resume_after: crate::harness::SEC * 3_600,
        }
    };
    rig.enqueue_many([Job { n: 1 }, Job { n: 2 }]).await;
    let worker = rig.start(jobs(handler), settings());
    let both = async || (seen.spans("process").len() == 2).then_some(());
    crate::harness::until(both).await;
    worker.stop().await;
    let runs = seen.spans("process");
    let with = |outcome: &str| {
        let is = |run: &&SpanData| attribute(run, "outcome").as_deref() == Some(outcome);
        runs.iter().find(is).unwrap()
    };
    let failed = with("failed");
    assert!(
        matches!(failed.status, SpanStatus::Error { .. }),
        "{failed:?}"
    );
    assert_eq!(
        attribute(failed, "error.type").as_deref(),
        Some("handler_error")
    );
    assert_eq!(with("parked").status, SpanStatus::Unset);
}
