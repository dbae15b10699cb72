//! A listener without what its connection managers say of traces and of given routes, encoded once: many workloads have the rest alike.

use std::sync::Arc;

use bytes::Bytes;
use prost::encoding::{encoded_len_varint, key_len};
use prost::{Message, Name};
use wire::backward;
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::google::protobuf::Any;

use super::cast::{Cast, Casting, Likened, next};
use crate::telemetry::spans::{REQUEST_ID, Spans, TRACING};

/// From a listener to its connection managers, by the numbers of fields: chains and the default one, filters, configuration, value.
const WAY: &[&[u32]] = &[&[3, 25], &[3], CONFIGURATION, &[2]];
const CONFIGURATION: &[u32] = &[4];
/// Of a connection manager.
const ROUTES: u32 = 4;
/// Fields that may be there for one workload and not for another.
const TRACED: [(u32, Hole); 2] = [(TRACING, Hole::Tracing), (REQUEST_ID, Hole::RequestId)];

#[derive(Debug)]
pub(super) struct Mould {
    /// Of the parts that are bytes, and what was in the holes, one behind the other.
    model: Arc<[u8]>,
    parts: Vec<Part>,
}

/// What is put into the holes of a mould: each field with its key.
pub(super) struct Filling<'a> {
    spans: &'a Spans,
    routes: Vec<Bytes>,
}

#[derive(Debug)]
enum Part {
    /// So many, where the last ended.
    Bytes(usize),
    Message {
        field: u32,
        parts: Vec<Part>,
    },
    /// So many of the model were in it.
    Hole(Hole, usize),
}

#[derive(Debug, Clone, Copy)]
enum Hole {
    Tracing,
    RequestId,
    /// By the place of their name among those that were given.
    Routes(usize),
}

impl Mould {
    /// `routes`: names of those that are inside of it and differ.
    pub(super) fn new(listener: &Listener, routes: &[String]) -> Self {
        let mut cut = Cut { routes, model: Vec::new() };
        let parts = cut.parts(&backward::encode(listener), WAY);
        Self { model: cut.model.into(), parts }
    }

    /// The bytes of the listener. `known`: for all that get this filling.
    pub(super) fn cast<'a>(&'a self, filling: &'a Filling<'_>, known: &mut Vec<Likened<'a>>) -> Cast {
        let mut lens = Vec::with_capacity(32);
        measure(&self.parts, filling, &mut lens);
        let mut out = Casting::of(&self.model, known);
        write(&self.parts, filling, &mut lens.into_iter(), &mut out);
        out.done()
    }
}

impl<'a> Filling<'a> {
    /// `routes`: in the order of the names that the mould was made with.
    pub(super) fn new(spans: &'a Spans, routes: impl Iterator<Item = RouteConfiguration>) -> Self {
        Self { spans, routes: routes.map(|routes| backward::field(ROUTES, &routes)).collect() }
    }

    fn of(&self, hole: Hole) -> &[u8] {
        match hole {
            Hole::Tracing => &self.spans.tracing,
            Hole::RequestId => &self.spans.request_id,
            Hole::Routes(which) => &self.routes[which],
        }
    }
}

/// The length of all. `lens`: that of each message, in the order in which they begin.
fn measure(parts: &[Part], filling: &Filling<'_>, lens: &mut Vec<usize>) -> usize {
    let of = |part: &Part| match part {
        Part::Bytes(len) => *len,
        Part::Hole(hole, _) => filling.of(*hole).len(),
        Part::Message { field, parts } => {
            let at = lens.len();
            lens.push(0);
            lens[at] = measure(parts, filling, lens);
            key_len(*field) + encoded_len_varint(lens[at] as u64) + lens[at]
        }
    };
    parts.iter().map(of).sum()
}

fn write<'a>(
    parts: &[Part],
    filling: &'a Filling<'_>,
    lens: &mut impl Iterator<Item = usize>,
    out: &mut Casting<'a, '_>,
) {
    for part in parts {
        match part {
            Part::Bytes(len) => out.take(*len),
            Part::Hole(hole, len) => out.liken(*len, filling.of(*hole)),
            Part::Message { field, parts } => {
                out.open(*field, lens.next().expect("each was measured"));
                write(parts, filling, lens, out);
            }
        }
    }
}

/// A listener being taken apart.
struct Cut<'a> {
    routes: &'a [String],
    model: Vec<u8>,
}

impl Cut<'_> {
    /// `way`: what is left of it.
    fn parts(&mut self, message: &[u8], way: &[&[u32]]) -> Vec<Part> {
        let Some((fields, further)) = way.split_first() else { return self.parts_of_manager(message) };
        let (mut out, mut rest) = (Vec::new(), message);
        while !rest.is_empty() {
            let (field, bytes, payload) = next(&mut rest).expect(OURS);
            let leads = fields.contains(&field) && (*fields != CONFIGURATION || is_manager(payload));
            if leads {
                out.push(Part::Message { field, parts: self.parts(payload, further) });
            } else {
                self.put(&mut out, bytes);
            }
        }
        out
    }

    fn parts_of_manager(&mut self, manager: &[u8]) -> Vec<Part> {
        let (mut out, mut rest) = (Vec::new(), manager);
        let mut holes = TRACED.into_iter().peekable();
        while !rest.is_empty() {
            let (field, bytes, payload) = next(&mut rest).expect(OURS);
            // Fields are encoded in the order of their numbers.
            while let Some((_, hole)) = holes.next_if(|(traced, _)| *traced < field) {
                out.push(Part::Hole(hole, 0));
            }
            let traced = holes.next_if(|(traced, _)| *traced == field).map(|(_, hole)| hole);
            let given = if field == ROUTES { place_of(payload, self.routes) } else { None };
            match traced.or(given.map(Hole::Routes)) {
                Some(hole) => {
                    self.model.extend_from_slice(bytes);
                    out.push(Part::Hole(hole, bytes.len()));
                }
                None => self.put(&mut out, bytes),
            }
        }
        out.extend(holes.map(|(_, hole)| Part::Hole(hole, 0)));
        out
    }

    fn put(&mut self, out: &mut Vec<Part>, bytes: &[u8]) {
        self.model.extend_from_slice(bytes);
        match out.last_mut() {
            Some(Part::Bytes(len)) => *len += bytes.len(),
            _ => out.push(Part::Bytes(bytes.len())),
        }
    }
}

fn place_of(routes: &[u8], names: &[String]) -> Option<usize> {
    let RouteConfiguration { name, .. } = RouteConfiguration::decode(routes).expect(OURS);
    names.iter().position(|given| *given == name)
}

fn is_manager(configuration: &[u8]) -> bool {
    Any::decode(configuration).is_ok_and(|any| any.type_url == HttpConnectionManager::type_url())
}

const OURS: &str = "it was encoded right before";

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
    fn a_mould_that_one_workload_made_fits_the_others() {
        let parsed = parse_documents("objects.yaml", OBJECTS);
        assert!(parsed.refused.is_empty(), "{:?}", parsed.notes);
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(parsed.objects.into_iter().map(Update::Put).collect());
        let mesh = Mesh::new(&store.snapshot(), &Arc::new(Environment::default()));
        for first in ["one", "silent"] {
            let http = crate::outbound_listeners(&mesh, &placed(&mesh, first)).http;
            let mut seen = Vec::new();
            for app in [first, "two", "silent"] {
                let placement = placed(&mesh, app);
                let spans = Spans::towards_others(&mesh, &placement);
                let cast = http.cast(&mesh, &placement, &spans).expect("nothing is patched");
                let bytes = |cast: &Cast| cast.pieces().flatten().copied().collect::<Vec<u8>>();
                let cast: Vec<_> = cast.iter().map(|(name, made)| (name.clone(), bytes(&made.value))).collect();
                let whole = http.listeners(&mesh, &placement).into_iter().map(|made| made.value);
                let whole: Vec<_> = whole.map(|listener| (listener.name.clone(), listener.encode_to_vec())).collect();
                assert_eq!(cast, whole, "{app} after {first}");
                seen.push(cast);
            }
            assert!(seen[0].len() > 1 && seen[1] != seen[2]);
        }
    }
}
