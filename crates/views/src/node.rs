//! Reads an Envoy node message into the model's types.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use config::locality::Locality;
use model::{MetadataValue, NodeInfo, Proxy, ProxyConfigCache, ProxyError};
use serde_json::Value;
use wire::envoy::config::core::v3::{self as core, Node};
use wire::proto_struct::{self, StructView, ValueView};

/// The node with its metadata as JSON, for debug pages and tests. Fails if the metadata is malformed.
pub fn node_info(node: &Node) -> Result<NodeInfo, proto_struct::Error> {
    let metadata = node.metadata.as_deref().map_or(Ok(Value::Null), proto_struct::to_json)?;
    Ok(NodeInfo { metadata, ..without_metadata(node) })
}

/// Reads a proxy straight from the encoded metadata, whose names are sorted.
pub(crate) fn read_proxy(node: &Node, settings: &mut ProxyConfigCache) -> Result<Proxy, ProxyError> {
    let view = StructView::new(node.metadata.as_ref().unwrap_or(&Bytes::new()));
    let fields: Vec<_> = view.fields().collect();
    Proxy::with_metadata(&without_metadata(node), WireMetadata::Root(&fields), settings)
}

/// Node metadata as encoded on the wire.
#[derive(Clone, Copy)]
enum WireMetadata<'a> {
    /// Sorted by name.
    Root(&'a [(&'a str, ValueView<'a>)]),
    Item(ValueView<'a>),
}

impl<'a> MetadataValue<'a> for WireMetadata<'a> {
    fn get(self, key: &str) -> Option<Self> {
        let found = match self {
            WireMetadata::Root(fields) => {
                fields.binary_search_by_key(&key, |(name, _)| name).ok().map(|at| fields[at].1)
            }
            WireMetadata::Item(item) => item.fields().find(|(name, _)| *name == key).map(|(_, item)| item),
        };
        found.map(WireMetadata::Item)
    }

    fn is_null(self) -> bool {
        self.item().is_some_and(ValueView::is_null)
    }

    fn as_str(self) -> Option<&'a str> {
        self.item().and_then(ValueView::text)
    }

    fn as_bool(self) -> Option<bool> {
        self.item().and_then(ValueView::boolean)
    }

    fn as_f64(self) -> Option<f64> {
        self.item().and_then(ValueView::number)
    }

    fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        let (whole, item) = match self {
            WireMetadata::Root(fields) => (fields, None),
            WireMetadata::Item(item) => ([].as_slice(), Some(item)),
        };
        let of_item = item.into_iter().flat_map(ValueView::fields);
        whole.iter().copied().chain(of_item).map(|(name, item)| (name, WireMetadata::Item(item)))
    }

    fn to_json(self) -> Cow<'a, Value> {
        Cow::Owned(self.item().map(ValueView::json).unwrap_or_default())
    }

    fn to_bytes(self) -> Cow<'a, [u8]> {
        Cow::Borrowed(self.item().map(ValueView::bytes).unwrap_or_default())
    }
}

impl<'a> WireMetadata<'a> {
    fn item(self) -> Option<ValueView<'a>> {
        match self {
            WireMetadata::Root(_) => None,
            WireMetadata::Item(item) => Some(item),
        }
    }
}

fn without_metadata(node: &Node) -> NodeInfo {
    let locality = node.locality.as_ref();
    let part = |read: fn(&core::Locality) -> &String| Arc::from(locality.map(read).map_or("", String::as_str));
    NodeInfo {
        id: node.id.clone(),
        cluster: node.cluster.clone(),
        metadata: Value::Null,
        locality: Locality { region: part(|l| &l.region), zone: part(|l| &l.zone), subzone: part(|l| &l.sub_zone) },
        extensions: node
            .extensions
            .iter()
            .flat_map(|e| std::iter::once(&e.name).chain(&e.type_urls))
            .cloned()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::google::protobuf::{ListValue, Struct, Value as Field, value::Kind};

    use super::*;

    #[test]
    fn rejects_a_node_with_malformed_metadata() {
        let kind = Some(Kind::StringValue("shop".into()));
        let metadata = Struct { fields: [("NAMESPACE".to_owned(), Field { kind })].into() }.encode_to_vec();
        let node = |metadata: Option<Vec<u8>>| Node { metadata: metadata.map(Into::into), ..Node::default() };
        let read = |node: &Node| node_info(node).map(|info| info.metadata);
        assert_eq!(read(&node(Some(metadata))), Ok(serde_json::json!({"NAMESPACE": "shop"})));
        assert_eq!(read(&node(Some(Vec::new()))), Ok(serde_json::json!({})));
        assert_eq!(read(&node(None)), Ok(Value::Null));
        assert_eq!(read(&node(Some(vec![0xff]))), Err(proto_struct::Error::Malformed));
    }

    fn field(value: &Value) -> Field {
        let kind = match value {
            Value::Null => Kind::NullValue(0),
            Value::Bool(truth) => Kind::BoolValue(*truth),
            Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a number")),
            Value::String(text) => Kind::StringValue(text.clone()),
            Value::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(field).collect() }),
            Value::Object(_) => Kind::StructValue(struct_of(value)),
        };
        Field { kind: Some(kind) }
    }

    fn struct_of(value: &Value) -> Struct {
        let fields = value.as_object().expect("an object");
        Struct { fields: fields.iter().map(|(name, value)| (name.clone(), field(value))).collect() }
    }

    #[test]
    fn reading_encoded_metadata_equals_reading_it_as_json() {
        let settings = serde_json::json!({"tracing": {"maxPathTagLength": 7}, "concurrency": 2});
        for metadata in [
            serde_json::json!({
                "NAMESPACE": "shop", "LABELS": {"app": "cart", "number": 7, "z": "", "version": "v1"}, "CLUSTER_ID": "c", "NETWORK": "n",
                "INSTANCE_IPS": "10.0.0.7,fd00::7", "DNS_CAPTURE": "true", "UNPRIVILEGED_POD": true, "ENVOY_STATUS_PORT": 15021,
                "ENVOY_PROMETHEUS_PORT": "15090", "PROXY_CONFIG": settings, "ANNOTATIONS": {"resource.opentelemetry.io/service.name": "own"},
                "ISTIO_VERSION": "1.31.0", "INTERCEPTION_MODE": "TPROXY", "REQUESTED_NETWORK_VIEW": "a,b", "APP_CONTAINERS": "app",
                "TLS_CLIENT_CERT_CHAIN": "/etc/chain.pem", "HTTP_PROXY_PORT": "15007", "IDLE_TIMEOUT": "1h", "LIST": [1, "two"],
            }),
            serde_json::json!({"LABELS": "none", "NAMESPACE": 7, "PROXY_CONFIG": null, "DNS_CAPTURE": 1, "INSTANCE_IPS": null}),
            serde_json::json!({}),
        ] {
            let bytes = struct_of(&metadata).encode_to_vec();
            let id = "sidecar~10.0.0.1~cart.shop~shop.svc.cluster.local".to_owned();
            let node = Node { id, cluster: "cart.shop".into(), metadata: Some(bytes.into()), ..Node::default() };
            let by_json = Proxy::new(&node_info(&node).expect("well-formed"));
            assert_eq!(read_proxy(&node, &mut ProxyConfigCache::default()), by_json, "{metadata}");
        }
        let bare = Node { id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local".into(), ..Node::default() };
        assert_eq!(
            read_proxy(&bare, &mut ProxyConfigCache::default()),
            Proxy::new(&node_info(&bare).expect("well-formed"))
        );
    }
}
