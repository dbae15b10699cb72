//! A listener without what its connection managers say of traces and of given routes, encoded once: many workloads have the rest alike.

use std::sync::Arc;

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
    skip_field,
};
use prost::{Message, Name};
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::config::route::v3::RouteConfiguration;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::google::protobuf::Any;

use crate::proto::field;
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
    /// Of the parts that are bytes, one behind the other.
    bytes: Arc<[u8]>,
    parts: Vec<Part>,
}

/// Encoded bytes as those of a model and what is between them: of many that come from one mould each holds only that.
#[derive(Debug)]
pub struct Cast {
    pub model: Arc<[u8]>,
    /// What is not in the model, one behind the other.
    pub own: Vec<u8>,
    /// Again and again: how many own bytes, and how many of the model, where it was left.
    pub steps: Vec<(usize, usize)>,
}

/// What is put into the holes of a mould: each field with its key.
pub(super) struct Filling<'a> {
    spans: &'a Spans,
    routes: Vec<Vec<u8>>,
}

#[derive(Debug)]
enum Part {
    /// So many, where the last ended.
    Bytes(usize),
    Message {
        field: u32,
        parts: Vec<Part>,
    },
    Hole(Hole),
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
        let mut cut = Cut { routes, bytes: Vec::new() };
        let parts = cut.parts(&listener.encode_to_vec(), WAY);
        Self { bytes: cut.bytes.into(), parts }
    }

    /// The bytes of the listener.
    pub(super) fn cast(&self, filling: &Filling<'_>) -> Cast {
        let mut cast = Cast { model: self.bytes.clone(), own: Vec::with_capacity(2048), steps: Vec::new() };
        let mut lens = Vec::with_capacity(32);
        measure(&self.parts, filling, &mut lens);
        let said = write(&self.parts, filling, &mut lens.into_iter(), &mut cast, 0);
        if said < cast.own.len() {
            cast.steps.push((cast.own.len() - said, 0));
        }
        cast
    }
}

impl Cast {
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (mut own, mut model) = (&self.own[..], &self.model[..]);
        self.steps.iter().flat_map(move |(next, taken)| {
            let (said, left);
            (said, own) = own.split_at(*next);
            (left, model) = model.split_at(*taken);
            [said, left]
        })
    }
}

impl<'a> Filling<'a> {
    /// `routes`: in the order of the names that the mould was made with.
    pub(super) fn new(spans: &'a Spans, routes: impl Iterator<Item = RouteConfiguration>) -> Self {
        Self { spans, routes: routes.map(|routes| field(ROUTES, &routes)).collect() }
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
        Part::Hole(hole) => filling.of(*hole).len(),
        Part::Message { field, parts } => {
            let at = lens.len();
            lens.push(0);
            lens[at] = measure(parts, filling, lens);
            key_len(*field) + encoded_len_varint(lens[at] as u64) + lens[at]
        }
    };
    parts.iter().map(of).sum()
}

/// `said`: how many own bytes are in steps already. Answers how many are then.
fn write(
    parts: &[Part],
    filling: &Filling<'_>,
    lens: &mut impl Iterator<Item = usize>,
    cast: &mut Cast,
    mut said: usize,
) -> usize {
    for part in parts {
        match part {
            Part::Bytes(len) => {
                cast.steps.push((cast.own.len() - said, *len));
                said = cast.own.len();
            }
            Part::Hole(hole) => cast.own.extend_from_slice(filling.of(*hole)),
            Part::Message { field, parts } => {
                encode_key(*field, WireType::LengthDelimited, &mut cast.own);
                encode_varint(lens.next().expect("each was measured") as u64, &mut cast.own);
                said = write(parts, filling, lens, cast, said);
            }
        }
    }
    said
}

/// A listener being taken apart.
struct Cut<'a> {
    routes: &'a [String],
    /// What stays.
    bytes: Vec<u8>,
}

impl Cut<'_> {
    /// `way`: what is left of it.
    fn parts(&mut self, message: &[u8], way: &[&[u32]]) -> Vec<Part> {
        let Some((fields, further)) = way.split_first() else { return self.parts_of_manager(message) };
        let (mut out, mut rest) = (Vec::new(), message);
        while !rest.is_empty() {
            let (field, bytes, payload) = next(&mut rest);
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
            let (field, bytes, payload) = next(&mut rest);
            // Fields are encoded in the order of their numbers.
            while let Some((_, hole)) = holes.next_if(|(traced, _)| *traced <= field) {
                out.push(Part::Hole(hole));
            }
            let given = if field == ROUTES { place_of(payload, self.routes) } else { None };
            match given {
                Some(which) => out.push(Part::Hole(Hole::Routes(which))),
                None if TRACED.iter().any(|(traced, _)| *traced == field) => {}
                None => self.put(&mut out, bytes),
            }
        }
        out.extend(holes.map(|(_, hole)| Part::Hole(hole)));
        out
    }

    fn put(&mut self, out: &mut Vec<Part>, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
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

/// Number, all bytes and payload of the first field, which is taken off. Only fields of a length have a payload.
fn next<'a>(rest: &mut &'a [u8]) -> (u32, &'a [u8], &'a [u8]) {
    let whole = *rest;
    let (field, wire) = decode_key(rest).expect(OURS);
    let mut payload: &[u8] = &[];
    if wire == WireType::LengthDelimited {
        let len = decode_varint(rest).expect(OURS) as usize;
        (payload, *rest) = rest.split_at(len);
    } else {
        skip_field(wire, field, rest, DecodeContext::default()).expect(OURS);
    }
    (field, &whole[..whole.len() - rest.len()], payload)
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
