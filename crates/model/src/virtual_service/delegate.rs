//! Delegation: a route is replaced by those of a VirtualService without hosts. One level only, so that cycles cannot occur.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kinds::string_match::StringMatch;
use config::kinds::virtual_service::{self as kube, HttpAction, HttpMatchRequest, HttpRoute};
use config::mesh::MeshConfig;
use config::meta::Object;
use config::store::Name;
use imbl::OrdMap;

use super::name_resolution::{self, NameResolver};
use crate::visibility::Visibility;

/// The VirtualServices without hosts.
#[derive(Debug, Clone, Default)]
pub(super) struct Delegates {
    by_name: OrdMap<Name, Arc<Delegate>>,
}

#[derive(Debug)]
struct Delegate {
    id: ObjectId,
    visibility: Visibility,
    http: Vec<HttpRoute>,
}

impl Delegates {
    pub(super) fn put(&mut self, object: &Object<kube::VirtualService>, config: &MeshConfig, domain: &str) {
        let meta = &object.meta;
        let naming = NameResolver { namespace: &meta.namespace, domain };
        let written = &object.spec.export_to;
        let export_to = if written.is_empty() { &config.default_virtual_service_export_to } else { written };
        let delegate = Delegate {
            id: name_resolution::id(meta),
            visibility: Visibility::new(export_to.iter().map(String::as_str), &meta.namespace),
            http: object.spec.http.iter().map(|route| naming.http(route)).collect(),
        };
        self.by_name.insert(Name::new(&meta.namespace, &meta.name), Arc::new(delegate));
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.by_name.remove(name);
    }

    /// The route itself, or the routes that it delegates to. A delegate that is absent or not visible yields none.
    pub(super) fn expand(&self, root: HttpRoute, namespace: &str, made_from: &mut Vec<ObjectId>) -> Vec<HttpRoute> {
        let HttpAction::Delegate(to) = root.action() else { return vec![root] };
        let of = if to.namespace.is_empty() { namespace } else { &to.namespace };
        let Some(delegate) = self.by_name.get(&Name::new(of, &to.name)) else { return Vec::new() };
        if !delegate.visibility.allows(namespace) {
            return Vec::new();
        }
        if !made_from.contains(&delegate.id) {
            made_from.push(delegate.id.clone());
        }
        delegate.http.iter().filter_map(|route| merged(&root, route)).collect()
    }
}

/// Fields that the delegate does not set come from the root. `None`: no request can match both.
fn merged(root: &HttpRoute, delegate: &HttpRoute) -> Option<HttpRoute> {
    Some(HttpRoute {
        name: joined(&root.name, &delegate.name),
        matches: merged_matches(&root.matches, &delegate.matches)?,
        route: delegate.route.clone(),
        redirect: delegate.redirect.clone(),
        direct_response: delegate.direct_response.clone().or_else(|| root.direct_response.clone()),
        // A delegate of a delegate is not followed: the route has no destination, and is left out.
        delegate: None,
        rewrite: delegate.rewrite.clone().or_else(|| root.rewrite.clone()),
        timeout: delegate.timeout.or(root.timeout),
        retries: delegate.retries.clone().or_else(|| root.retries.clone()),
        fault: delegate.fault.clone().or_else(|| root.fault.clone()),
        mirror: delegate.mirror.clone().or_else(|| root.mirror.clone()),
        mirrors: if delegate.mirrors.is_empty() { root.mirrors.clone() } else { delegate.mirrors.clone() },
        mirror_percent: delegate.mirror_percent.or(root.mirror_percent),
        mirror_percentage: delegate.mirror_percentage.or(root.mirror_percentage),
        cors_policy: delegate.cors_policy.clone().or_else(|| root.cors_policy.clone()),
        headers: delegate.headers.clone().or_else(|| root.headers.clone()),
    })
}

fn joined(root: &str, delegate: &str) -> String {
    match (root, delegate) {
        (name, "") | ("", name) => name.to_owned(),
        (root, delegate) => format!("{root}-{delegate}"),
    }
}

/// Each match of the delegate combined with each compatible one of the root; `None`: one of the delegate is compatible with none.
fn merged_matches(root: &[HttpMatchRequest], delegate: &[HttpMatchRequest]) -> Option<Vec<HttpMatchRequest>> {
    if root.is_empty() || delegate.is_empty() {
        return Some([root, delegate].concat());
    }
    let mut out = Vec::new();
    for inner in delegate {
        let fitting: Vec<_> =
            root.iter().filter(|outer| !conflict(outer, inner)).map(|outer| merged_match(outer, inner)).collect();
        if fitting.is_empty() {
            return None;
        }
        out.extend(fitting);
    }
    Some(out)
}

fn merged_match(root: &HttpMatchRequest, delegate: &HttpMatchRequest) -> HttpMatchRequest {
    let either = |delegate: &Option<StringMatch>, root: &Option<StringMatch>| delegate.clone().or_else(|| root.clone());
    let first = |delegate: &str, root: &str| if delegate.is_empty() { root.to_owned() } else { delegate.to_owned() };
    HttpMatchRequest {
        name: joined(&root.name, &delegate.name),
        uri: either(&delegate.uri, &root.uri),
        scheme: either(&delegate.scheme, &root.scheme),
        method: either(&delegate.method, &root.method),
        authority: either(&delegate.authority, &root.authority),
        headers: union(&root.headers, &delegate.headers),
        without_headers: union(&root.without_headers, &delegate.without_headers),
        query_params: union(&root.query_params, &delegate.query_params),
        port: if delegate.port == 0 { root.port } else { delegate.port },
        source_labels: root.source_labels.iter().chain(delegate.source_labels.iter()).collect(),
        gateways: if delegate.gateways.is_empty() { root.gateways.clone() } else { delegate.gateways.clone() },
        ignore_uri_case: delegate.ignore_uri_case,
        source_namespace: first(&delegate.source_namespace, &root.source_namespace),
        stat_prefix: first(&delegate.stat_prefix, &root.stat_prefix),
    }
}

type Strings = BTreeMap<String, StringMatch>;

fn union(root: &Strings, delegate: &Strings) -> Strings {
    root.iter().chain(delegate).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// No request can match both.
fn conflict(root: &HttpMatchRequest, delegate: &HttpMatchRequest) -> bool {
    let one = |root: &Option<StringMatch>, delegate: &Option<StringMatch>| match (root, delegate) {
        (Some(root), Some(delegate)) => text_conflict(root, delegate),
        _ => false,
    };
    let many = |root: &Strings, delegate: &Strings| {
        delegate.iter().any(|(key, delegate)| root.get(key).is_some_and(|root| text_conflict(root, delegate)))
    };
    let labels = delegate
        .source_labels
        .iter()
        .any(|(key, value)| root.source_labels.get(key).is_some_and(|wanted| wanted != value));
    let gateways = !root.gateways.is_empty() && delegate.gateways.iter().any(|name| !root.gateways.contains(name));
    one(&root.uri, &delegate.uri)
        || one(&root.scheme, &delegate.scheme)
        || one(&root.method, &delegate.method)
        || one(&root.authority, &delegate.authority)
        || many(&root.headers, &delegate.headers)
        || many(&root.without_headers, &delegate.without_headers)
        || many(&root.query_params, &delegate.query_params)
        || root.ignore_uri_case != delegate.ignore_uri_case
        || (root.port > 0 && delegate.port > 0 && root.port != delegate.port)
        || (!root.source_namespace.is_empty() && root.source_namespace != delegate.source_namespace)
        || labels
        || gateways
}

/// Regular expressions cannot be compared; exact strings must be equal, and a prefix of the root must be one of the delegate's.
fn text_conflict(root: &StringMatch, delegate: &StringMatch) -> bool {
    use StringMatch::{Exact, Prefix};
    match (root, delegate) {
        (Exact(root), Exact(delegate)) if !root.is_empty() => root != delegate,
        (Prefix(root), Prefix(delegate) | Exact(delegate)) if !root.is_empty() && !delegate.is_empty() => {
            !delegate.starts_with(root)
        }
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
    fn a_delegate_only_narrows_its_root() {
        let check = |root: StringMatch, delegate: StringMatch, want| {
            assert_eq!(text_conflict(&root, &delegate), want, "{root:?} {delegate:?}");
        };
        check(prefix("/a"), prefix("/a/b"), false);
        check(prefix("/a/b"), prefix("/a"), true);
        check(prefix("/a"), StringMatch::Exact("/a/b".into()), false);
        check(StringMatch::Exact("/a".into()), StringMatch::Exact("/a".into()), false);
        check(StringMatch::Exact("/a".into()), prefix("/a"), true);
        check(StringMatch::Regex(".*".into()), prefix("/a"), true);
    }

    #[test]
    fn a_route_is_dropped_if_one_of_its_matches_is_incompatible() {
        let on = |uri: &str| HttpMatchRequest { uri: Some(prefix(uri)), ..HttpMatchRequest::default() };
        assert_eq!(merged_matches(&[on("/a")], &[on("/a/b"), on("/c")]), None);
        assert_eq!(merged_matches(&[on("/a"), on("/")], &[on("/a/b")]).map(|all| all.len()), Some(2));
        assert_eq!(merged_matches(&[], &[on("/c")]).map(|all| all.len()), Some(1));
    }
}
