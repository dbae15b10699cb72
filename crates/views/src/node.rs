//! The border: a node message read into plain data.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use config::locality::Locality;
use model::{NodeInfo, Proxy, ProxyError, Said, SentSettings};
use serde_json::Value;
use wire::envoy::config::core::v3::{self as core, Node};
use wire::structure::{self, Item, View};

/// Fails where the metadata cannot be read.
pub fn node_info(node: &Node) -> Result<NodeInfo, structure::Error> {
    let metadata = node.metadata.as_deref().map_or(Ok(Value::Null), structure::json)?;
    Ok(NodeInfo { metadata, ..without_metadata(node) })
}

/// The same at once, where the metadata has its names in order.
pub(crate) fn proxy(node: &Node, known: &mut SentSettings) -> Result<Proxy, ProxyError> {
    let view = View::new(node.metadata.as_ref().unwrap_or(&Bytes::new()));
    let fields: Vec<_> = view.fields().collect();
    Proxy::saying(&without_metadata(node), Sent::Whole(&fields), known)
}

/// Metadata as it came over the wire.
#[derive(Clone, Copy)]
enum Sent<'a> {
    /// By name.
    Whole(&'a [(&'a str, Item<'a>)]),
    Item(Item<'a>),
}

impl<'a> Said<'a> for Sent<'a> {
    fn get(self, key: &str) -> Option<Self> {
        let found = match self {
            Sent::Whole(fields) => fields.binary_search_by_key(&key, |(name, _)| name).ok().map(|at| fields[at].1),
            Sent::Item(item) => item.fields().find(|(name, _)| *name == key).map(|(_, item)| item),
        };
        found.map(Sent::Item)
    }

    fn is_null(self) -> bool {
        self.item().is_some_and(Item::is_null)
    }

    fn text(self) -> Option<&'a str> {
        self.item().and_then(Item::text)
    }

    fn truth(self) -> Option<bool> {
        self.item().and_then(Item::truth)
    }

    fn number(self) -> Option<f64> {
        self.item().and_then(Item::number)
    }

    fn fields(self) -> impl Iterator<Item = (&'a str, Self)> {
        let (whole, item) = match self {
            Sent::Whole(fields) => (fields, None),
            Sent::Item(item) => ([].as_slice(), Some(item)),
        };
        let of_item = item.into_iter().flat_map(Item::fields);
        whole.iter().copied().chain(of_item).map(|(name, item)| (name, Sent::Item(item)))
    }

    fn json(self) -> Cow<'a, Value> {
        Cow::Owned(self.item().map(Item::json).unwrap_or_default())
    }

    fn bytes(self) -> Cow<'a, [u8]> {
        Cow::Borrowed(self.item().map(Item::bytes).unwrap_or_default())
    }
}

impl<'a> Sent<'a> {
    fn item(self) -> Option<Item<'a>> {
        match self {
            Sent::Whole(_) => None,
            Sent::Item(item) => Some(item),
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
    fn metadata_is_read_or_the_node_is_refused() {
        let kind = Some(Kind::StringValue("shop".into()));
        let metadata = Struct { fields: [("NAMESPACE".to_owned(), Field { kind })].into() }.encode_to_vec();
        let node = |metadata: Option<Vec<u8>>| Node { metadata: metadata.map(Into::into), ..Node::default() };
        let read = |node: &Node| node_info(node).map(|info| info.metadata);
        assert_eq!(read(&node(Some(metadata))), Ok(serde_json::json!({"NAMESPACE": "shop"})));
        assert_eq!(read(&node(Some(Vec::new()))), Ok(serde_json::json!({})));
        assert_eq!(read(&node(None)), Ok(Value::Null));
        assert_eq!(read(&node(Some(vec![0xff]))), Err(structure::Error::Malformed));
    }

    fn field(value: &Value) -> Field {
        let kind = match value {
            Value::Null => Kind::NullValue(0),
            Value::Bool(truth) => Kind::BoolValue(*truth),
            Value::Number(number) => Kind::NumberValue(number.as_f64().expect("a number")),
            Value::String(text) => Kind::StringValue(text.clone()),
            Value::Array(values) => Kind::ListValue(ListValue { values: values.iter().map(field).collect() }),
            Value::Object(_) => Kind::StructValue(structure_of(value)),
        };
        Field { kind: Some(kind) }
    }

    fn structure_of(value: &Value) -> Struct {
        let fields = value.as_object().expect("an object");
        Struct { fields: fields.iter().map(|(name, value)| (name.clone(), field(value))).collect() }
    }

    #[test]
    fn read_at_once_a_node_is_what_it_is_by_way_of_json() {
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
            let bytes = structure_of(&metadata).encode_to_vec();
            let id = "sidecar~10.0.0.1~cart.shop~shop.svc.cluster.local".to_owned();
            let node = Node { id, cluster: "cart.shop".into(), metadata: Some(bytes.into()), ..Node::default() };
            let by_json = Proxy::new(&node_info(&node).expect("well-formed"));
            assert_eq!(proxy(&node, &mut SentSettings::default()), by_json, "{metadata}");
        }
        let bare = Node { id: "sidecar~10.0.0.1~a.b~b.svc.cluster.local".into(), ..Node::default() };
        assert_eq!(proxy(&bare, &mut SentSettings::default()), Proxy::new(&node_info(&bare).expect("well-formed")));
    }
}
