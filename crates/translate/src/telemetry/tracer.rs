//! Envoy tracers, by provider.

use config::mesh::{DatadogProvider, ProviderKind, SkyWalkingProvider, ZipkinProvider, ZipkinTraceContext};
use model::{Mesh, Placement, Release};
use wire::any::{self, Packable};
use wire::envoy::config::trace::v3::{
    DatadogConfig, SkyWalkingConfig, ZipkinConfig,
    tracing::{Http, http::ConfigType},
    zipkin_config::{CollectorEndpointVersion, TraceContextOption},
};

use super::collector::{self, Collector};
use super::open_telemetry;
use crate::proto::{boolean, duration, seconds};

/// The default timeout of Zipkin collectors.
const ZIPKIN_LIMIT: i64 = 5;

pub(super) struct Tracer {
    pub(super) provider: Http,
    /// `None`: not configured.
    pub(super) max_tag_length: Option<u32>,
    /// A span for each upstream attempt, also on sidecars.
    pub(super) spawns_spans: bool,
    /// It has its own sampler.
    pub(super) samples: bool,
}

/// `None`: the provider is not a tracing provider, or its service is unknown.
pub(super) fn tracer(mesh: &Mesh, placement: &Placement, provider: &ProviderKind) -> Option<Tracer> {
    let traced_as = placement.trace_service_name(provider).unwrap_or_default();
    match provider {
        ProviderKind::Zipkin(provider) => zipkin(mesh, placement, provider),
        ProviderKind::Datadog(provider) => datadog(mesh, traced_as, provider),
        ProviderKind::SkyWalking(provider) => sky_walking(mesh, provider),
        ProviderKind::OpenTelemetry(provider) => open_telemetry::tracer(mesh, traced_as, provider),
        _ => None,
    }
}

pub(super) fn plain<M: Packable>(name: &str, config: &M, max_tag_length: u32) -> Tracer {
    Tracer {
        provider: Http { name: name.to_owned(), config_type: Some(ConfigType::TypedConfig(any::pack(config))) },
        max_tag_length: Some(max_tag_length).filter(|length| *length != 0),
        spawns_spans: false,
        samples: false,
    }
}

fn zipkin(mesh: &Mesh, placement: &Placement, provider: &ZipkinProvider) -> Option<Tracer> {
    let collector = Collector::new(mesh, &provider.service, provider.port)?;
    let path = if provider.path.is_empty() { "/api/v2/spans" } else { &provider.path };
    let release = placement.proxy.release;
    let context = match provider.trace_context_option {
        ZipkinTraceContext::UseB3WithW3cPropagation if release >= Release::V1_28 => {
            TraceContextOption::UseB3WithW3cPropagation
        }
        _ => TraceContextOption::UseB3,
    };
    let mut config = ZipkinConfig {
        collector_endpoint_version: CollectorEndpointVersion::HttpJson.into(),
        trace_id_128bit: !provider.enable_64bit_trace_id,
        shared_span_context: Some(boolean(false)),
        trace_context_option: context.into(),
        ..ZipkinConfig::default()
    };
    if release >= Release::V1_29 {
        let limit = provider.timeout.as_ref().map_or(seconds(ZIPKIN_LIMIT), duration);
        let uri = format!("http://{}{path}", collector.host);
        let headers = collector::headers(mesh, &provider.headers);
        config.collector_service = Some(collector.http(uri, Some(limit), headers));
    } else {
        config.collector_cluster = collector.cluster;
        config.collector_endpoint = path.to_owned();
        config.collector_hostname = collector.host;
    }
    Some(plain("envoy.tracers.zipkin", &config, provider.max_tag_length))
}

fn datadog(mesh: &Mesh, service_name: String, provider: &DatadogProvider) -> Option<Tracer> {
    let collector = Collector::new(mesh, &provider.service, provider.port)?;
    let config = DatadogConfig {
        collector_cluster: collector.cluster,
        service_name,
        collector_hostname: collector.host,
        ..DatadogConfig::default()
    };
    Some(plain("envoy.tracers.datadog", &config, provider.max_tag_length))
}

fn sky_walking(mesh: &Mesh, provider: &SkyWalkingProvider) -> Option<Tracer> {
    let collector = Collector::new(mesh, &provider.service, provider.port)?;
    let config = SkyWalkingConfig { grpc_service: Some(collector.grpc()), ..SkyWalkingConfig::default() };
    Some(Tracer { spawns_spans: true, ..plain("envoy.tracers.skywalking", &config, 0) })
}
