//! EnvoyFilter: patches of generated configuration. Patch values stay JSON; `translate` applies them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::json_object::JsonObject;
use super::one_of::{Conflict, one_of};
use super::target_ref::TargetRef;
use super::workload_selector::WorkloadSelector;
use crate::ser::is_default;

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyFilter {
    /// `None`: every workload of the namespace.
    pub workload_selector: Option<WorkloadSelector>,
    pub target_refs: Vec<TargetRef>,
    pub config_patches: Vec<ConfigPatch>,
    /// Lower comes first.
    pub priority: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigPatch {
    pub apply_to: ApplyTo,
    /// `None`: everything that `apply_to` names.
    #[serde(rename = "match")]
    pub object_match: Option<ObjectMatch>,
    pub patch: Option<EnvoyFilterPatch>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ApplyTo {
    #[default]
    Invalid,
    Listener,
    FilterChain,
    NetworkFilter,
    HttpFilter,
    RouteConfiguration,
    VirtualHost,
    HttpRoute,
    Cluster,
    ExtensionConfig,
    Bootstrap,
    ListenerFilter,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PatchContext {
    #[default]
    Any,
    SidecarInbound,
    SidecarOutbound,
    Gateway,
    Waypoint,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "RawObjectMatch", rename_all = "camelCase")]
pub struct ObjectMatch {
    #[serde(skip_serializing_if = "is_default")]
    pub context: PatchContext,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyMatch>,
    /// `None`: every object of the kind that is patched.
    #[serde(flatten)]
    pub object: Option<MatchedObject>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MatchedObject {
    Listener(ListenerMatch),
    RouteConfiguration(RouteConfigurationMatch),
    Cluster(ClusterMatch),
    Waypoint(WaypointMatch),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawObjectMatch {
    context: PatchContext,
    proxy: Option<ProxyMatch>,
    listener: Option<ListenerMatch>,
    route_configuration: Option<RouteConfigurationMatch>,
    cluster: Option<ClusterMatch>,
    waypoint: Option<WaypointMatch>,
}

impl TryFrom<RawObjectMatch> for ObjectMatch {
    type Error = Conflict;

    fn try_from(raw: RawObjectMatch) -> Result<Self, Conflict> {
        let object = one_of([
            ("listener", raw.listener.map(MatchedObject::Listener)),
            ("routeConfiguration", raw.route_configuration.map(MatchedObject::RouteConfiguration)),
            ("cluster", raw.cluster.map(MatchedObject::Cluster)),
            ("waypoint", raw.waypoint.map(MatchedObject::Waypoint)),
        ])?;
        Ok(ObjectMatch { context: raw.context, proxy: raw.proxy, object })
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProxyMatch {
    /// A regular expression for the proxy's Istio version.
    pub proxy_version: String,
    pub metadata: BTreeMap<String, String>,
}

/// 0 and empty strings match everything, as in the other matches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerMatch {
    pub port_number: u32,
    pub port_name: String,
    pub filter_chain: Option<FilterChainMatch>,
    pub listener_filter: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterChainMatch {
    pub name: String,
    pub sni: String,
    pub transport_protocol: String,
    /// Separated by commas.
    pub application_protocols: String,
    pub filter: Option<FilterMatch>,
    pub destination_port: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FilterMatch {
    pub name: String,
    pub sub_filter: Option<SubFilterMatch>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SubFilterMatch {
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteConfigurationMatch {
    pub port_number: u32,
    pub port_name: String,
    /// `namespace/name` of a Gateway.
    pub gateway: String,
    pub vhost: Option<VirtualHostMatch>,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VirtualHostMatch {
    pub name: String,
    pub domain_name: String,
    pub route: Option<RouteMatch>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteMatch {
    pub name: String,
    pub action: RouteAction,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RouteAction {
    #[default]
    Any,
    Route,
    Redirect,
    DirectResponse,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterMatch {
    pub port_number: u32,
    pub service: String,
    pub subset: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointMatch {
    pub port_number: u32,
    pub route: Option<WaypointRouteMatch>,
    pub filter: Option<FilterMatch>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WaypointRouteMatch {
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvoyFilterPatch {
    pub operation: Operation,
    /// `None`: not set, as `Operation::Remove` allows.
    pub value: Option<JsonObject>,
    pub filter_class: FilterClass,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Operation {
    #[default]
    Invalid,
    Merge,
    Add,
    Remove,
    InsertBefore,
    InsertAfter,
    InsertFirst,
    Replace,
    MergeAndReplaceList,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FilterClass {
    #[default]
    Unspecified,
    Authn,
    Authz,
    Stats,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::example::{check_enum, example, parse_error};

    fn matched(yaml: &str) -> MatchedObject {
        example::<ObjectMatch>(yaml).object.expect(yaml)
    }

    #[test]
    fn a_filter_with_every_field() {
        let filter: EnvoyFilter = example(
            "
workloadSelector: {labels: {app: web}}
targetRefs: [{kind: Gateway, name: gw}]
priority: -10
configPatches:
- applyTo: HTTP_FILTER
  match:
    context: SIDECAR_INBOUND
    proxy: {proxyVersion: ^1, metadata: {A: b}}
  patch:
    operation: INSERT_BEFORE
    filterClass: AUTHZ
    value: {name: lua, typed_config: {'@type': type.googleapis.com/x, snake_case: [1, 2.5, null]}}
- applyTo: CLUSTER
  patch: {operation: REMOVE}
",
        );
        assert_eq!(filter.workload_selector.unwrap().labels.get("app"), Some("web"));
        assert_eq!((&filter.target_refs[0].name[..], filter.priority), ("gw", -10));
        let [first, second] = &filter.config_patches[..] else { panic!("two patches") };
        assert_eq!((first.apply_to, second.apply_to), (ApplyTo::HttpFilter, ApplyTo::Cluster));
        let proxy = ProxyMatch { proxy_version: "^1".into(), metadata: [("A".to_owned(), "b".to_owned())].into() };
        let object_match = ObjectMatch { context: PatchContext::SidecarInbound, proxy: Some(proxy), object: None };
        assert_eq!((&first.object_match, &second.object_match), (&Some(object_match), &None));
        let patch = first.patch.as_ref().unwrap();
        assert_eq!((patch.operation, patch.filter_class), (Operation::InsertBefore, FilterClass::Authz));
        let value = serde_json::json!({
            "name": "lua",
            "typed_config": {"@type": "type.googleapis.com/x", "snake_case": [1, 2.5, null]},
        });
        assert_eq!(patch.value.as_ref().map(|value| &value.0), value.as_object());
        assert_eq!(second.patch.as_ref().unwrap().value, None);
    }

    #[test]
    fn each_object_that_can_be_matched() {
        let sub_filter = || Some(SubFilterMatch { name: "router".into() });
        let filter = || Some(FilterMatch { name: "hcm".into(), sub_filter: sub_filter() });
        let listener = ListenerMatch {
            port_number: 80,
            port_name: "http".into(),
            filter_chain: Some(FilterChainMatch {
                name: "a".into(),
                sni: "b".into(),
                transport_protocol: "tls".into(),
                application_protocols: "h2,http/1.1".into(),
                filter: filter(),
                destination_port: 81,
            }),
            listener_filter: "c".into(),
            name: "d".into(),
        };
        let read = matched(
            "
listener:
  portNumber: 80
  portName: http
  filterChain:
    name: a
    sni: b
    transportProtocol: tls
    applicationProtocols: h2,http/1.1
    filter: {name: hcm, subFilter: {name: router}}
    destinationPort: 81
  listenerFilter: c
  name: d
",
        );
        assert_eq!(read, MatchedObject::Listener(listener));
        let route = RouteConfigurationMatch {
            port_number: 80,
            port_name: "http".into(),
            gateway: "ns/gw".into(),
            vhost: Some(VirtualHostMatch {
                name: "v".into(),
                domain_name: "example.com".into(),
                route: Some(RouteMatch { name: "r".into(), action: RouteAction::Redirect }),
            }),
            name: "n".into(),
        };
        let read = matched(
            "
routeConfiguration:
  portNumber: 80
  portName: http
  gateway: ns/gw
  vhost: {name: v, domainName: example.com, route: {name: r, action: REDIRECT}}
  name: n
",
        );
        assert_eq!(read, MatchedObject::RouteConfiguration(route));
        let cluster = ClusterMatch { port_number: 80, service: "a".into(), subset: "b".into(), name: "c".into() };
        assert_eq!(
            matched("cluster: {portNumber: 80, service: a, subset: b, name: c}"),
            MatchedObject::Cluster(cluster)
        );
        let waypoint =
            WaypointMatch { port_number: 80, route: Some(WaypointRouteMatch { name: "r".into() }), filter: filter() };
        let read =
            matched("waypoint: {portNumber: 80, route: {name: r}, filter: {name: hcm, subFilter: {name: router}}}");
        assert_eq!(read, MatchedObject::Waypoint(waypoint));
    }

    #[test]
    fn rejects_two_objects_at_once() {
        assert_eq!(
            parse_error::<EnvoyFilter>("configPatches: [{match: {listener: {}, cluster: {}}}]"),
            "spec.configPatches[0].match: listener and cluster exclude each other; keep one of them"
        );
    }

    #[test]
    fn enums() {
        check_enum(&[
            ("INVALID", ApplyTo::Invalid),
            ("LISTENER", ApplyTo::Listener),
            ("FILTER_CHAIN", ApplyTo::FilterChain),
            ("NETWORK_FILTER", ApplyTo::NetworkFilter),
            ("HTTP_FILTER", ApplyTo::HttpFilter),
            ("ROUTE_CONFIGURATION", ApplyTo::RouteConfiguration),
            ("VIRTUAL_HOST", ApplyTo::VirtualHost),
            ("HTTP_ROUTE", ApplyTo::HttpRoute),
            ("CLUSTER", ApplyTo::Cluster),
            ("EXTENSION_CONFIG", ApplyTo::ExtensionConfig),
            ("BOOTSTRAP", ApplyTo::Bootstrap),
            ("LISTENER_FILTER", ApplyTo::ListenerFilter),
        ]);
        check_enum(&[
            ("ANY", PatchContext::Any),
            ("SIDECAR_INBOUND", PatchContext::SidecarInbound),
            ("SIDECAR_OUTBOUND", PatchContext::SidecarOutbound),
            ("GATEWAY", PatchContext::Gateway),
            ("WAYPOINT", PatchContext::Waypoint),
        ]);
        check_enum(&[
            ("INVALID", Operation::Invalid),
            ("MERGE", Operation::Merge),
            ("ADD", Operation::Add),
            ("REMOVE", Operation::Remove),
            ("INSERT_BEFORE", Operation::InsertBefore),
            ("INSERT_AFTER", Operation::InsertAfter),
            ("INSERT_FIRST", Operation::InsertFirst),
            ("REPLACE", Operation::Replace),
            ("MERGE_AND_REPLACE_LIST", Operation::MergeAndReplaceList),
        ]);
        check_enum(&[
            ("ANY", RouteAction::Any),
            ("ROUTE", RouteAction::Route),
            ("REDIRECT", RouteAction::Redirect),
            ("DIRECT_RESPONSE", RouteAction::DirectResponse),
        ]);
        check_enum(&[
            ("UNSPECIFIED", FilterClass::Unspecified),
            ("AUTHN", FilterClass::Authn),
            ("AUTHZ", FilterClass::Authz),
            ("STATS", FilterClass::Stats),
        ]);
    }
}
