//! Tracing of an HTTP connection manager: sampling, tags, and the tracer.

use model::{Mesh, Percentage as Share, Placement, Release, TracingTarget, WorkloadTracing as Decided};
use wire::any;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{
    RequestIdExtension, http_connection_manager::Tracing,
};
use wire::envoy::extensions::request_id::uuid::v3::UuidRequestIdConfig;
use wire::envoy::r#type::tracing::v3::CustomTag;
use wire::envoy::r#type::v3::Percent;

use super::{custom_tag, side, tracer};
use crate::filter::Direction;
use crate::proto::{boolean, uint32};

/// The sampling percentage that replaces one above 100.
const DEFAULT_SAMPLING: f64 = 1.0;

/// The tracing fields of a connection manager.
pub(crate) struct ConnectionTracing {
    /// `None`: tracing is off.
    pub(crate) tracing: Option<Tracing>,
    pub(crate) request_id: RequestIdExtension,
}

pub(crate) fn connection_tracing(mesh: &Mesh, placement: &Placement, direction: Direction) -> ConnectionTracing {
    let without_provider = |tracing| ConnectionTracing { tracing, request_id: request_id(true) };
    match &side(placement, direction).tracing {
        Decided::Mesh => without_provider(mesh.config.enable_tracing.then(|| of_mesh(mesh, placement))),
        Decided::Off => without_provider(None),
        Decided::To(to) => match of_provider(mesh, placement, to) {
            None => without_provider(None),
            tracing => ConnectionTracing { tracing, request_id: request_id(to.samples_by_request_id) },
        },
    }
}

/// Tags and sampling for the tracer of the proxy's bootstrap, if it has one.
fn of_mesh(mesh: &Mesh, placement: &Placement) -> Tracing {
    let settings = &placement.settings.tracing;
    let own = custom_tag::of_settings(&settings.custom_tags);
    Tracing {
        max_path_tag_length: settings.max_path_tag_length.map(uint32),
        ..sampling(share(mesh, placement), tags(placement, settings.istio_tags, own))
    }
}

/// `None`: the provider is not a tracing provider, or its service is unknown.
fn of_provider(mesh: &Mesh, placement: &Placement, to: &TracingTarget) -> Option<Tracing> {
    let tracer = tracer::tracer(mesh, placement, mesh.extension_provider(&to.provider)?)?;
    let settings = &placement.settings.tracing;
    let own = if to.custom_tags.is_empty() {
        custom_tag::of_settings(&settings.custom_tags)
    } else {
        custom_tag::of_objects(placement, &to.custom_tags)
    };
    // A tracer with its own sampler gets all requests.
    let decided = if tracer.samples { Some(Share(100.0)) } else { to.sampling };
    let share = decided.map_or_else(|| share(mesh, placement), |share| share.0);
    Some(Tracing {
        max_path_tag_length: tracer.max_tag_length.or(settings.max_path_tag_length).map(uint32),
        provider: Some(tracer.provider),
        spawn_upstream_span: (tracer.spawns_spans || placement.is_gateway()).then(|| boolean(true)),
        no_context_propagation: to.disables_context_propagation && placement.proxy.release >= Release::V1_30,
        ..sampling(share, tags(placement, to.istio_tags, own))
    })
}

/// The proxy config's percentage, else the control plane's default.
fn share(mesh: &Mesh, placement: &Placement) -> f64 {
    match placement.settings.tracing.sampling {
        Some(Share(share)) if share > 100.0 => DEFAULT_SAMPLING,
        Some(Share(share)) => share,
        None => mesh.env.trace_sampling.0,
    }
}

fn sampling(share: f64, custom_tags: Vec<CustomTag>) -> Tracing {
    let percent = |value: f64| Some(Percent { value });
    Tracing {
        client_sampling: percent(100.0),
        random_sampling: percent(share),
        overall_sampling: percent(100.0),
        custom_tags,
        ..Tracing::default()
    }
}

fn tags(placement: &Placement, istio: bool, own: Vec<CustomTag>) -> Vec<CustomTag> {
    let mut tags = if istio { custom_tag::of_istio(placement) } else { Vec::new() };
    tags.extend(own);
    tags.sort_by(|a, b| a.tag.cmp(&b.tag));
    tags
}

fn request_id(samples: bool) -> RequestIdExtension {
    RequestIdExtension {
        typed_config: Some(any::pack(&UuidRequestIdConfig {
            use_request_id_for_trace_sampling: Some(boolean(samples)),
            ..UuidRequestIdConfig::default()
        })),
    }
}
