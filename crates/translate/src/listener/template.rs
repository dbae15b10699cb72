//! A listener encoded once as a template, with slots for the tracing fields and inline routes of its HTTP connection managers: the other
//! fields are equal for many workloads.

use std::sync::Arc;

use bytes::Bytes;
use prost::{Message, Name};
use protobuf::{Field, Fields, field_len};
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::google::protobuf::Any;

use super::template_instance::{FieldDiff, InstanceWriter, TemplateInstance};
use crate::telemetry::encoded_tracing::{EncodedTracing, REQUEST_ID, TRACING};

/// Field numbers from a listener to its connection managers: filter chains and the default one, filters, typed config, value.
const PATH_TO_MANAGERS: &[&[u32]] = &[&[3, 25], &[3], CONFIGURATION, &[2]];
const CONFIGURATION: &[u32] = &[4];
/// Field numbers of a connection manager.
const ROUTES: u32 = 4;
/// Fields that may be absent for some workloads.
const TRACING_SLOTS: [(u32, Slot); 2] = [(TRACING, Slot::Tracing), (REQUEST_ID, Slot::RequestId)];

#[derive(Debug)]
pub(super) struct ListenerTemplate {
    /// The literal bytes and the slot values of the first workload, concatenated.
    template: Arc<[u8]>,
    segments: Vec<Segment>,
}

/// The values of a template's slots: each is a field with its tag.
pub(super) struct TemplateValues<'a> {
    tracing: &'a EncodedTracing,
    routes: Vec<Bytes>,
}

#[derive(Debug)]
enum Segment {
    /// The next bytes of the template.
    Literal(usize),
    Message {
        field: u32,
        segments: Vec<Segment>,
    },
    /// A slot and the length of its value in the template.
    Slot(Slot, usize),
}

#[derive(Debug, Clone, Copy)]
enum Slot {
    Tracing,
    RequestId,
    /// By index of the given route names.
    Routes(usize),
}

impl ListenerTemplate {
    /// `routes`: names of the inline routes that become slots.
    pub(super) fn new(listener: &Listener, routes: &[String]) -> Self {
        let mut parser = TemplateParser { routes, template: Vec::new() };
        let segments = parser.segments(&protobuf::encode(listener), PATH_TO_MANAGERS);
        Self { template: parser.template.into(), segments }
    }

    /// The listener with these values. `known`: diffs of the same values, shared by all templates.
    pub(super) fn instantiate<'a>(
        &'a self,
        values: &'a TemplateValues<'_>,
        diffs: &mut Vec<FieldDiff<'a>>,
    ) -> TemplateInstance {
        let mut lens = Vec::with_capacity(32);
        measure(&self.segments, values, &mut lens);
        let mut out = InstanceWriter::of(&self.template, diffs);
        write(&self.segments, values, &mut lens.into_iter(), &mut out);
        out.finish()
    }
}

impl<'a> TemplateValues<'a> {
    /// `routes`: in the order of the names that the template was made with.
    pub(super) fn new(tracing: &'a EncodedTracing, routes: impl Iterator<Item = RouteConfiguration>) -> Self {
        Self { tracing, routes: routes.map(|routes| protobuf::field(ROUTES, &routes)).collect() }
    }

    fn of(&self, slot: Slot) -> &[u8] {
        match slot {
            Slot::Tracing => &self.tracing.tracing,
            Slot::RequestId => &self.tracing.request_id,
            Slot::Routes(which) => &self.routes[which],
        }
    }
}

/// The encoded length. `lens`: the length of each nested message, in the order in which they begin.
fn measure(segments: &[Segment], values: &TemplateValues<'_>, lens: &mut Vec<usize>) -> usize {
    let of = |segment: &Segment| match segment {
        Segment::Literal(len) => *len,
        Segment::Slot(slot, _) => values.of(*slot).len(),
        Segment::Message { field, segments } => {
            let at = lens.len();
            lens.push(0);
            lens[at] = measure(segments, values, lens);
            field_len(*field, lens[at])
        }
    };
    segments.iter().map(of).sum()
}

fn write<'a>(
    segments: &[Segment],
    values: &'a TemplateValues<'_>,
    lens: &mut impl Iterator<Item = usize>,
    out: &mut InstanceWriter<'a, '_>,
) {
    for segment in segments {
        match segment {
            Segment::Literal(len) => out.copy(*len),
            Segment::Slot(slot, len) => out.write_diff(*len, values.of(*slot)),
            Segment::Message { field, segments } => {
                out.write_header(*field, lens.next().expect("each was measured"));
                write(segments, values, lens, out);
            }
        }
    }
}

/// Splits an encoded listener into segments.
struct TemplateParser<'a> {
    routes: &'a [String],
    template: Vec<u8>,
}

impl TemplateParser<'_> {
    /// `path`: the remaining path to the connection managers.
    fn segments(&mut self, message: &[u8], path: &[&[u32]]) -> Vec<Segment> {
        let Some((fields, rest_of_path)) = path.split_first() else { return self.manager_segments(message) };
        let (mut out, mut rest) = (Vec::new(), Fields::new(message));
        while let Some(Field { number: field, whole, content }) = rest.next_field().expect(OWN_ENCODING) {
            let payload = content.unwrap_or_default();
            let leads = fields.contains(&field) && (*fields != CONFIGURATION || is_connection_manager(payload));
            if leads {
                out.push(Segment::Message { field, segments: self.segments(payload, rest_of_path) });
            } else {
                self.push_literal(&mut out, whole);
            }
        }
        out
    }

    fn manager_segments(&mut self, manager: &[u8]) -> Vec<Segment> {
        let (mut out, mut rest) = (Vec::new(), Fields::new(manager));
        let mut slots = TRACING_SLOTS.into_iter().peekable();
        while let Some(Field { number: field, whole, content }) = rest.next_field().expect(OWN_ENCODING) {
            // prost encodes fields in the order of their numbers.
            while let Some((_, slot)) = slots.next_if(|(tracing, _)| *tracing < field) {
                out.push(Segment::Slot(slot, 0));
            }
            let tracing = slots.next_if(|(tracing, _)| *tracing == field).map(|(_, slot)| slot);
            let route = if field == ROUTES { route_index(content.unwrap_or_default(), self.routes) } else { None };
            match tracing.or(route.map(Slot::Routes)) {
                Some(slot) => {
                    self.template.extend_from_slice(whole);
                    out.push(Segment::Slot(slot, whole.len()));
                }
                None => self.push_literal(&mut out, whole),
            }
        }
        out.extend(slots.map(|(_, slot)| Segment::Slot(slot, 0)));
        out
    }

    fn push_literal(&mut self, out: &mut Vec<Segment>, bytes: &[u8]) {
        self.template.extend_from_slice(bytes);
        match out.last_mut() {
            Some(Segment::Literal(len)) => *len += bytes.len(),
            _ => out.push(Segment::Literal(bytes.len())),
        }
    }
}

fn route_index(routes: &[u8], names: &[String]) -> Option<usize> {
    let RouteConfiguration { name, .. } = RouteConfiguration::decode(routes).expect(OWN_ENCODING);
    names.iter().position(|route| *route == name)
}

fn is_connection_manager(configuration: &[u8]) -> bool {
    Any::decode(configuration).is_ok_and(|any| any.type_url == HttpConnectionManager::type_url())
}

const OWN_ENCODING: &str = "it was encoded right before";

#[cfg(test)]
mod tests {
    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{Environment, Mesh, NodeInfo, Placement, Proxy};
    use serde_json::json;

    use super::*;

    const OBJECTS: &str = "
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: shop}, spec: {clusterIP: 10.1.0.1, ports: [{name: http, port: 80}, {name: auto, port: 81}]}}
---
{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {name: silent, namespace: shop}, spec: {selector: {matchLabels: {app: silent}}, tracing: [{disableSpanReporting: true}]}}
";

    fn placed(mesh: &Mesh, app: &str) -> Placement {
        let id = format!("sidecar~10.0.0.1~{app}.shop~shop.svc.cluster.local");
        let metadata = json!({"LABELS": {"app": app, "service.istio.io/canonical-name": app}});
        mesh.place(&Arc::new(Proxy::new(&NodeInfo { id, metadata, ..NodeInfo::default() }).expect("well-formed")))
    }

    #[test]
    fn a_template_of_one_workload_fits_the_others() {
        let parsed = parse_documents("objects.yaml", OBJECTS);
        assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let mesh = Mesh::new(&store.snapshot(), &Arc::new(Environment::default()));
        for first in ["one", "silent"] {
            let http = crate::outbound_listeners(&mesh, &placed(&mesh, first)).http;
            let mut seen = Vec::new();
            for app in [first, "two", "silent"] {
                let placement = placed(&mesh, app);
                let tracing = EncodedTracing::outbound(&mesh, &placement);
                let instances = http.instantiate(&mesh, &placement, &tracing).expect("nothing is patched");
                let bytes = |instances: &TemplateInstance| instances.pieces().flatten().copied().collect::<Vec<u8>>();
                let instances: Vec<_> =
                    instances.iter().map(|(name, made)| (name.clone(), bytes(&made.value))).collect();
                let whole = http.listeners(&mesh, &placement).into_iter().map(|made| made.value);
                let whole: Vec<_> = whole.map(|listener| (listener.name.clone(), listener.encode_to_vec())).collect();
                assert_eq!(instances, whole, "{app} after {first}");
                seen.push(instances);
            }
            assert!(seen[0].len() > 1 && seen[1] != seen[2]);
        }
    }
}
