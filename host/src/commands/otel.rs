//! Where spans go, with the feature `otel`.

use anyhow::{Context, Result};
use opentelemetry::global;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;

/// The variables that name a collector, as OpenTelemetry defines them.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// What sends spans to a collector, if a variable names one.
///
/// # Errors
/// Returns an error if the endpoint is no URL.
pub(super) fn exporter() -> Result<Option<SpanExporter>> {
    if ENDPOINTS.iter().all(|name| std::env::var_os(name).is_none()) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(opentelemetry_otlp::Protocol::HttpBinary)
        .build()
        .context(ENDPOINTS[1])?;
    Ok(Some(exporter))
}

/// Sends spans from now on. The library reads the other variables of OpenTelemetry, such as `OTEL_TRACES_SAMPLER`.
pub(super) fn start(exporter: Option<SpanExporter>) -> Option<SdkTracerProvider> {
    let exporter = exporter?;
    let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "tidegate".to_owned());
    let resource = Resource::builder().with_service_name(name).build();
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    global::set_tracer_provider(provider.clone());
    global::set_text_map_propagator(TraceContextPropagator::new());
    Some(provider)
}

/// Sends the spans that are left.
pub(super) async fn stop(provider: Option<SdkTracerProvider>) {
    let Some(provider) = provider else { return };
    let stop = tokio::task::spawn_blocking(move || provider.shutdown());
    if let Ok(Err(error)) = stop.await {
        tracing::warn!("the last spans were not sent: {error}");
    }
}
