//! The OpenTelemetry tracer over HTTP or gRPC, with the Dynatrace sampler if configured.

use config::mesh::{DynatraceSampler, HttpService as Written, OpenTelemetryProvider, ServiceAttributeEnrichment};
use model::Mesh;
use wire::any::{self, Packable};
use wire::envoy::config::core::v3::{GrpcService, HttpService, TypedExtensionConfig};
use wire::envoy::config::trace::v3::OpenTelemetryConfig;
use wire::envoy::extensions::tracers::opentelemetry::resource_detectors::v3::{
    DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig,
};
use wire::envoy::extensions::tracers::opentelemetry::samplers::v3::DynatraceSamplerConfig;

use super::collector::{self, Collector};
use super::tracer::{Tracer, plain};
use crate::proto::duration;

/// The path of the Dynatrace sampling API, on the host of the collector.
const SAMPLING_PATH: &str = "api/v2/samplingConfiguration";

/// `service_name`: of the proxy in spans.
pub(super) fn tracer(mesh: &Mesh, service_name: String, provider: &OpenTelemetryProvider) -> Option<Tracer> {
    let collector = Collector::new(mesh, &provider.service, provider.port)?;
    let sampler = match &provider.dynatrace_sampler {
        Some(wanted) => Some(sampler(mesh, &collector, wanted, provider.http.as_ref())?),
        None => None,
    };
    let samples = sampler.is_some();
    let mut config = OpenTelemetryConfig {
        service_name,
        resource_detectors: detectors(provider),
        sampler,
        ..OpenTelemetryConfig::default()
    };
    match &provider.http {
        Some(http) => config.http_service = Some(service(mesh, &collector, &http.path, http)),
        None => config.grpc_service = Some(grpc(mesh, collector, provider)),
    }
    Some(Tracer { samples, ..plain("envoy.tracers.opentelemetry", &config, provider.max_tag_length) })
}

fn grpc(mesh: &Mesh, collector: Collector, provider: &OpenTelemetryProvider) -> GrpcService {
    let written = provider.grpc.as_ref();
    let metadata = written.map(|grpc| grpc.initial_metadata.as_slice()).unwrap_or_default();
    GrpcService {
        timeout: written.and_then(|grpc| grpc.timeout.as_ref()).map(duration),
        initial_metadata: collector::metadata(mesh, metadata),
        ..collector.grpc()
    }
}

fn service(mesh: &Mesh, collector: &Collector, path: &str, written: &Written) -> HttpService {
    let headers = collector::headers(mesh, &written.headers);
    collector.http(collector.address(path), written.timeout.as_ref().map(duration), headers)
}

/// Resource attributes come from the proxy's environment.
fn detectors(provider: &OpenTelemetryProvider) -> Vec<TypedExtensionConfig> {
    let wanted = provider.resource_detectors.unwrap_or_default();
    let enriched = provider.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions;
    let environment = || {
        extension(
            "envoy.tracers.opentelemetry.resource_detectors.environment",
            &EnvironmentResourceDetectorConfig::default(),
        )
    };
    let dynatrace = || {
        extension(
            "envoy.tracers.opentelemetry.resource_detectors.dynatrace",
            &DynatraceResourceDetectorConfig::default(),
        )
    };
    let asked = wanted.environment.is_some();
    let first = asked.then(environment);
    let last = (enriched && !asked).then(environment);
    first.into_iter().chain(wanted.dynatrace.map(|_| dynatrace())).chain(last).collect()
}

/// `None`: the provider's service is unknown.
fn sampler(
    mesh: &Mesh,
    collector: &Collector,
    wanted: &DynatraceSampler,
    http: Option<&Written>,
) -> Option<TypedExtensionConfig> {
    let asked = match &wanted.http_service {
        None => service(mesh, collector, SAMPLING_PATH, http?),
        Some(api) => {
            let there = Collector::new(mesh, &api.service, api.port)?;
            let written = api.http.clone().unwrap_or_default();
            service(mesh, &there, &written.path, &written)
        }
    };
    let config = DynatraceSamplerConfig {
        tenant: wanted.tenant.clone(),
        cluster_id: wanted.cluster_id,
        http_service: Some(asked),
        root_spans_per_minute: wanted.root_spans_per_minute,
    };
    Some(extension("envoy.tracers.opentelemetry.samplers.dynatrace", &config))
}

fn extension<M: Packable>(name: &str, config: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any::pack(config)) }
}
