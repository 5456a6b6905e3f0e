//! Spans for a collector, by the environment variables that OpenTelemetry has for it.
//!
//! Nothing is set up unless one of them names a collector: a program without one pays nothing.

#[cfg(feature = "otel")]
pub(crate) use exported::Traces;
#[cfg(not(feature = "otel"))]
pub(crate) use unexported::Traces;

/// Where the collector is, for everything or for traces alone.
const ENDPOINT_VARIABLES: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

fn endpoint_variable() -> Option<&'static str> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    ENDPOINT_VARIABLES.into_iter().find(is_set)
}

#[cfg(feature = "otel")]
mod exported {
    use std::time::Duration;

    use opentelemetry::KeyValue;
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_otlp::SpanExporter;
    use opentelemetry_sdk::Resource;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing::Subscriber;
    use tracing_subscriber::Layer;
    use tracing_subscriber::filter::Targets;
    use tracing_subscriber::registry::LookupSpan;

    use super::endpoint_variable;
    use crate::failure::Failure;

    /// A collector that does not answer keeps nobody from ending for longer.
    const LAST_WORDS: Duration = Duration::from_secs(2);

    /// The name that spans come under, unless `OTEL_SERVICE_NAME` has another.
    const SERVICE: &str = "leasehold";

    /// What is on its way to the collector. Sent on when this is dropped, as far as two seconds allow.
    pub(crate) struct Traces {
        provider: Option<SdkTracerProvider>,
    }

    impl Traces {
        /// Sets the sending up. It has a thread of its own; a collector that is away costs spans, not work.
        pub(crate) fn begin() -> Result<Self, Failure> {
            let Some(variable) = endpoint_variable() else {
                return Ok(Self { provider: None });
            };
            // For a collector behind TLS. Fails if the process has one already, which then is used.
            let _ = rustls::crypto::ring::default_provider().install_default();
            let exporter = SpanExporter::builder()
                .with_http()
                .build()
                .map_err(|error| {
                    Failure::usage(format!("traces cannot be sent where {variable} says"))
                        .because(error)
                        .remedy("set it to a URL such as http://127.0.0.1:4318")
                })?;
            let mut resource = Resource::builder();
            if std::env::var_os("OTEL_SERVICE_NAME").is_none() {
                resource = resource.with_service_name(SERVICE);
            }
            let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
            let provider = SdkTracerProvider::builder()
                .with_batch_exporter(exporter)
                .with_resource(resource.with_attribute(version).build())
                .build();
            Ok(Self {
                provider: Some(provider),
            })
        }

        /// Takes our own spans, and nobody else's: a client library's would tell of the sending itself.
        pub(crate) fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
        where
            S: Subscriber + for<'a> LookupSpan<'a>,
        {
            let tracer = self.provider.as_ref()?.tracer(SERVICE);
            let ours = Targets::new().with_target("leasehold", tracing::Level::INFO);
            let layer = tracing_opentelemetry::layer().with_tracer(tracer);
            Some(layer.with_filter(ours))
        }
    }

    impl Drop for Traces {
        fn drop(&mut self) {
            if let Some(provider) = &self.provider {
                // What could not be sent is lost; the exporter has said so.
                let _ = provider.shutdown_with_timeout(LAST_WORDS);
            }
        }
    }
}

#[cfg(not(feature = "otel"))]
mod unexported {
    use tracing_subscriber::layer::Identity;

    use super::endpoint_variable;
    use crate::failure::Failure;

    /// This build sends no traces.
    pub(crate) struct Traces(Identity);

    impl Traces {
        pub(crate) fn begin() -> Result<Self, Failure> {
            match endpoint_variable() {
                None => Ok(Self(Identity::new())),
                Some(variable) => Err(Failure::usage(format!(
                    "{variable} is set, but this build of leasehold sends no traces"
                ))
                .remedy("unset it, or build with the feature otel")),
            }
        }

        pub(crate) fn layer(&self) -> Identity {
            self.0.clone()
        }
    }
}
