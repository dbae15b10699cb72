//! Delegation: routes of a VirtualService without hosts stand in for a route of one that has them. One level only, so cycles cannot be.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::kinds::string_match::StringMatch;
use config::kinds::virtual_service::{self as kube, HttpAction, HttpMatchRequest, HttpRoute};
use config::mesh::MeshConfig;
use config::meta::Object;
use config::note::ObjectId;
use config::store::Name;
use imbl::OrdMap;

use super::resolved::{self, Naming};
use crate::visibility::Visibility;

/// The VirtualServices without hosts.
#[derive(Debug, Clone, Default)]
pub(super) struct Leaves {
    by_name: OrdMap<Name, Arc<Leaf>>,
}

#[derive(Debug)]
struct Leaf {
    id: ObjectId,
    visibility: Visibility,
    http: Vec<HttpRoute>,
}

impl Leaves {
    pub(super) fn put(&mut self, object: &Object<kube::VirtualService>, config: &MeshConfig, domain: &str) {
        let meta = &object.meta;
        let naming = Naming { namespace: &meta.namespace, domain };
        let written = &object.spec.export_to;
        let export_to = if written.is_empty() { &config.default_virtual_service_export_to } else { written };
        let leaf = Leaf {
            id: resolved::id(meta),
            visibility: Visibility::new(export_to.iter().map(String::as_str), &meta.namespace),
            http: object.spec.http.iter().map(|route| naming.http(route)).collect(),
        };
        self.by_name.insert(Name::new(&meta.namespace, &meta.name), Arc::new(leaf));
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.by_name.remove(name);
    }

    /// The route itself, or the routes that it delegates to. A delegate that is absent or hidden leaves nothing.
    pub(super) fn in_place(&self, root: HttpRoute, namespace: &str, made_from: &mut Vec<ObjectId>) -> Vec<HttpRoute> {
        let HttpAction::Delegate(to) = root.action() else { return vec![root] };
        let of = if to.namespace.is_empty() { namespace } else { &to.namespace };
        let Some(leaf) = self.by_name.get(&Name::new(of, &to.name)) else { return Vec::new() };
        if !leaf.visibility.allows(namespace) {
            return Vec::new();
        }
        if !made_from.contains(&leaf.id) {
            made_from.push(leaf.id.clone());
        }
        leaf.http.iter().filter_map(|route| merged(&root, route)).collect()
    }
}

/// What the leaf does not say, the root does. `None`: no request can match both.
fn merged(root: &HttpRoute, leaf: &HttpRoute) -> Option<HttpRoute> {
    Some(HttpRoute {
        name: joined(&root.name, &leaf.name),
        matches: merged_matches(&root.matches, &leaf.matches)?,
        route: leaf.route.clone(),
        redirect: leaf.redirect.clone(),
        direct_response: leaf.direct_response.clone().or_else(|| root.direct_response.clone()),
        // A delegate of a delegate is not followed: the route has no destination, and vanishes.
        delegate: None,
        rewrite: leaf.rewrite.clone().or_else(|| root.rewrite.clone()),
        timeout: leaf.timeout.or(root.timeout),
        retries: leaf.retries.clone().or_else(|| root.retries.clone()),
        fault: leaf.fault.clone().or_else(|| root.fault.clone()),
        mirror: leaf.mirror.clone().or_else(|| root.mirror.clone()),
        mirrors: if leaf.mirrors.is_empty() { root.mirrors.clone() } else { leaf.mirrors.clone() },
        mirror_percent: leaf.mirror_percent.or(root.mirror_percent),
        mirror_percentage: leaf.mirror_percentage.or(root.mirror_percentage),
        cors_policy: leaf.cors_policy.clone().or_else(|| root.cors_policy.clone()),
        headers: leaf.headers.clone().or_else(|| root.headers.clone()),
    })
}

fn joined(root: &str, leaf: &str) -> String {
    match (root, leaf) {
        (name, "") | ("", name) => name.to_owned(),
        (root, leaf) => format!("{root}-{leaf}"),
    }
}

/// Each match of the leaf within each of the root that it fits; `None`: one of the leaf fits none of the root.
fn merged_matches(root: &[HttpMatchRequest], leaf: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() || leaf.is_empty() {
        return Some([root, leaf].concat());
    }
    let mut out = Vec::new();
    for inner in leaf {
        let fitting: Vec<_> =
            root.iter().filter(|outer| !conflict(outer, inner)).map(|outer| merged_match(outer, inner)).collect();
        if fitting.is_empty() {
            return None;
        }
        out.extend(fitting);
    }
    Some(out)
}

fn merged_match(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> HttpMatchRequest {
    let either = |leaf: &Option<StringMatch>, root: &Option<StringMatch>| leaf.clone().or_else(|| root.clone());
    let first = |leaf: &str, root: &str| if leaf.is_empty() { root.to_owned() } else { leaf.to_owned() };
    HttpMatchRequest {
        name: joined(&root.name, &leaf.name),
        uri: either(&leaf.uri, &root.uri),
        scheme: either(&leaf.scheme, &root.scheme),
        method: either(&leaf.method, &root.method),
        authority: either(&leaf.authority, &root.authority),
        headers: union(&root.headers, &leaf.headers),
        without_headers: union(&root.without_headers, &leaf.without_headers),
        query_params: union(&root.query_params, &leaf.query_params),
        port: if leaf.port == 0 { root.port } else { leaf.port },
        source_labels: root.source_labels.iter().chain(leaf.source_labels.iter()).collect(),
        gateways: if leaf.gateways.is_empty() { root.gateways.clone() } else { leaf.gateways.clone() },
        ignore_uri_case: leaf.ignore_uri_case,
        source_namespace: first(&leaf.source_namespace, &root.source_namespace),
        stat_prefix: first(&leaf.stat_prefix, &root.stat_prefix),
    }
}

type Strings = BTreeMap<String, StringMatch>;

fn union(root: &Strings, leaf: &Strings) -> Strings {
    root.iter().chain(leaf).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// The leaf asks for what the root rules out.
fn conflict(root: &HttpMatchRequest, leaf: &HttpMatchRequest) -> bool {
    let one = |root: &Option<StringMatch>, leaf: &Option<StringMatch>| match (root, leaf) {
        (Some(root), Some(leaf)) => text_conflict(root, leaf),
        _ => false,
    };
    let many = |root: &Strings, leaf: &Strings| {
        leaf.iter().any(|(key, leaf)| root.get(key).is_some_and(|root| text_conflict(root, leaf)))
    };
    let labels =
        leaf.source_labels.iter().any(|(key, value)| root.source_labels.get(key).is_some_and(|wanted| wanted != value));
    let gateways = !root.gateways.is_empty() && leaf.gateways.iter().any(|name| !root.gateways.contains(name));
    one(&root.uri, &leaf.uri)
        || one(&root.scheme, &leaf.scheme)
        || one(&root.method, &leaf.method)
        || one(&root.authority, &leaf.authority)
        || many(&root.headers, &leaf.headers)
        || many(&root.without_headers, &leaf.without_headers)
        || many(&root.query_params, &leaf.query_params)
        || root.ignore_uri_case != leaf.ignore_uri_case
        || (root.port > 0 && leaf.port > 0 && root.port != leaf.port)
        || (!root.source_namespace.is_empty() && root.source_namespace != leaf.source_namespace)
        || labels
        || gateways
}

/// Patterns cannot be compared; an exact text must be equal, a prefix must begin what is asked within it.
fn text_conflict(root: &StringMatch, leaf: &StringMatch) -> bool {
    use StringMatch::{Exact, Prefix};
    match (root, leaf) {
        (Exact(root), Exact(leaf)) if !root.is_empty() => root != leaf,
        (Prefix(root), Prefix(leaf) | Exact(leaf)) if !root.is_empty() && !leaf.is_empty() => !leaf.starts_with(root),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> StringMatch {
        StringMatch::Prefix(text.into())
    }

    #[test]
    fn a_leaf_stays_within_its_root() {
        let check = |root: StringMatch, leaf: StringMatch, want| {
            assert_eq!(text_conflict(&root, &leaf), want, "{root:?} {leaf:?}");
        };
        check(prefix("/a"), prefix("/a/b"), false);
        check(prefix("/a/b"), prefix("/a"), true);
        check(prefix("/a"), StringMatch::Exact("/a/b".into()), false);
        check(StringMatch::Exact("/a".into()), StringMatch::Exact("/a".into()), false);
        check(StringMatch::Exact("/a".into()), prefix("/a"), true);
        check(StringMatch::Regex(".*".into()), prefix("/a"), true);
    }

    #[test]
    fn a_route_goes_when_one_of_its_matches_fits_nothing() {
        let on = |uri: &str| HttpMatchRequest { uri: Some(prefix(uri)), ..HttpMatchRequest::default() };
        assert_eq!(merged_matches(&[on("/a")], &[on("/a/b"), on("/c")]), None);
        assert_eq!(merged_matches(&[on("/a"), on("/")], &[on("/a/b")]).map(|all| all.len()), Some(2));
        assert_eq!(merged_matches(&[], &[on("/c")]).map(|all| all.len()), Some(1));
    }
}
