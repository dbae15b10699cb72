//! A listener without what its connection managers say of traces, encoded once: the workloads of a namespace have the rest alike.

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, encoded_len_varint, key_len,
    skip_field,
};
use prost::{Message, Name};
use wire::envoy::config::listener::v3::Listener;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::google::protobuf::Any;

use crate::telemetry::tracing::Traced;

/// From a listener to its connection managers, by the numbers of fields: chains and the default one, filters, configuration, value.
const WAY: &[&[u32]] = &[&[3, 25], &[3], CONFIGURATION, &[2]];
const CONFIGURATION: &[u32] = &[4];
/// Of a connection manager.
const TRACING: u32 = 7;
const REQUEST_ID: u32 = 36;
const HOLES: [u32; 2] = [TRACING, REQUEST_ID];

#[derive(Debug)]
pub(super) struct Mould(Vec<Part>);

/// What is put into the holes of a mould: each field with its key.
pub(super) struct Filling([Vec<u8>; 2]);

#[derive(Debug)]
enum Part {
    Bytes(Vec<u8>),
    Message { field: u32, parts: Vec<Part> },
    Hole(usize),
}

impl Mould {
    pub(super) fn new(listener: &Listener) -> Self {
        Self(parts(&listener.encode_to_vec(), WAY))
    }

    /// The bytes of the listener.
    pub(super) fn filled(&self, filling: &Filling) -> Vec<u8> {
        let mut out = Vec::with_capacity(len(&self.0, filling));
        write(&self.0, filling, &mut out);
        out
    }
}

impl Filling {
    pub(super) fn new(Traced { tracing, request_id }: Traced) -> Self {
        let only = HttpConnectionManager::default;
        let tracing = HttpConnectionManager { tracing, ..only() };
        let request_id = HttpConnectionManager { request_id_extension: Some(request_id), ..only() };
        Self([tracing.encode_to_vec(), request_id.encode_to_vec()])
    }
}

fn len(parts: &[Part], filling: &Filling) -> usize {
    let of = |part: &Part| match part {
        Part::Bytes(bytes) => bytes.len(),
        Part::Hole(which) => filling.0[*which].len(),
        Part::Message { field, parts } => {
            let len = len(parts, filling);
            key_len(*field) + encoded_len_varint(len as u64) + len
        }
    };
    parts.iter().map(of).sum()
}

fn write(parts: &[Part], filling: &Filling, out: &mut Vec<u8>) {
    for part in parts {
        match part {
            Part::Bytes(bytes) => out.extend_from_slice(bytes),
            Part::Hole(which) => out.extend_from_slice(&filling.0[*which]),
            Part::Message { field, parts } => {
                encode_key(*field, WireType::LengthDelimited, out);
                encode_varint(len(parts, filling) as u64, out);
                write(parts, filling, out);
            }
        }
    }
}

/// `way`: what is left of it.
fn parts(message: &[u8], way: &[&[u32]]) -> Vec<Part> {
    let (mut out, mut rest, mut holes) = (Vec::new(), message, 0);
    while !rest.is_empty() {
        let (field, bytes, payload) = next(&mut rest);
        let Some((fields, further)) = way.split_first() else {
            // Fields are encoded in the order of their numbers.
            while holes < HOLES.len() && HOLES[holes] <= field {
                out.push(Part::Hole(holes));
                holes += 1;
            }
            if !HOLES.contains(&field) {
                put(&mut out, bytes);
            }
            continue;
        };
        let leads = fields.contains(&field) && (*fields != CONFIGURATION || is_manager(payload));
        if leads {
            out.push(Part::Message { field, parts: parts(payload, further) });
        } else {
            put(&mut out, bytes);
        }
    }
    if way.is_empty() {
        out.extend((holes..HOLES.len()).map(Part::Hole));
    }
    out
}

fn put(out: &mut Vec<Part>, bytes: &[u8]) {
    match out.last_mut() {
        Some(Part::Bytes(last)) => last.extend_from_slice(bytes),
        _ => out.push(Part::Bytes(bytes.to_vec())),
    }
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
    use std::sync::Arc;

    use config::object::parse_documents;
    use config::store::{Store, StoreOptions, Update};
    use model::{Environment, Mesh, NodeInfo, Placement, Proxy};
    use serde_json::json;

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
                let packed: Vec<_> =
                    http.packed(&mesh, &placement).into_iter().map(|(name, made)| (name, made.value)).collect();
                let whole = http.listeners(&mesh, &placement).into_iter().map(|made| made.value);
                let whole: Vec<_> = whole.map(|listener| (listener.name.clone(), wire::any::pack(&listener))).collect();
                assert_eq!(packed, whole, "{app} after {first}");
                seen.push(packed);
            }
            assert!(seen[0].len() > 1 && seen[1] != seen[2]);
        }
    }
}
