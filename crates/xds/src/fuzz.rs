//! Fuzz targets of the protocol: requests as prost decodes them, and subscriptions against a plain model. Compiled for tests, which replay the corpus in
//! `tests/fuzz`, and for `cargo xtask fuzz`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest};

use crate::protocol::{request::Request, request_error::RequestError, subscription::Subscription};
use crate::{TypeUrl, Variant};

const MAX_NAMES: usize = 10_000;
/// For some kilobytes; a hundred times what they take.
const SLOW: Duration = Duration::from_secs(10);

/// A request of either variant: decoded as prost does, or rejected.
pub fn requests(data: &[u8]) {
    let began = Instant::now();
    let message = Bytes::copy_from_slice(data);
    let prost = DeltaDiscoveryRequest::decode(message.clone()).ok();
    match Request::decode(Variant::Delta, &message, MAX_NAMES) {
        Ok(request) => check_delta(request, &prost.expect("prost decodes it too")),
        Err(error) => check_rejected(Variant::Delta, &error, prost.map(|request| request.encode_to_vec())),
    }
    let prost = DiscoveryRequest::decode(message.clone()).ok();
    match Request::decode(Variant::Sotw, &message, MAX_NAMES) {
        Ok(request) => check_sotw(&request, &prost.expect("prost decodes it too")),
        Err(error) => check_rejected(Variant::Sotw, &error, prost.map(|request| request.encode_to_vec())),
    }
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
}

fn check_delta(mut request: Request, prost: &DeltaDiscoveryRequest) {
    assert_eq!((request.type_url(), request.nonce()), (&*prost.type_url, &*prost.response_nonce));
    assert_eq!((request.node(), request.error()), (prost.node.as_ref(), prost.error_detail.as_ref()));
    assert_eq!(request.lists.subscribe(), prost.resource_names_subscribe);
    assert_eq!(request.lists.unsubscribe(), prost.resource_names_unsubscribe);
    let (versions, all) = (&mut request.lists.initial_versions, &prost.initial_resource_versions);
    assert_eq!(versions.names().collect::<BTreeSet<_>>(), all.keys().map(String::as_str).collect());
    versions.build_index();
    assert!(all.iter().all(|(name, version)| versions.has(name, version)));
}

fn check_sotw(request: &Request, prost: &DiscoveryRequest) {
    assert_eq!((request.type_url(), request.nonce()), (&*prost.type_url, &*prost.response_nonce));
    assert_eq!((request.node(), request.error()), (prost.node.as_ref(), prost.error_detail.as_ref()));
    assert_eq!(request.lists.subscribe(), prost.resource_names);
}

/// `encoded`: what prost decoded, encoded again. prost does not check the wire type of map entries, so that it decodes some malformed requests too.
fn check_rejected(variant: Variant, error: &RequestError, encoded: Option<Vec<u8>>) {
    let Some(encoded) = encoded.filter(|_| matches!(error, RequestError::Malformed(_))) else { return };
    let again = Request::decode(variant, &encoded.into(), MAX_NAMES);
    assert!(!matches!(again, Err(RequestError::Malformed(_))), "{error}, but prost decodes it");
}

/// Updates of one subscription. A line is a request: names to add, and with a `-` names to remove.
pub fn subscriptions(data: &[u8]) {
    let began = Instant::now();
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines().map(|line| {
        let (less, more): (Vec<&str>, Vec<&str>) = line.split_whitespace().partition(|name| name.starts_with('-'));
        (more, less.into_iter().map(|name| &name[1..]).collect::<Vec<_>>())
    });
    let (more, less) = lines.next().unwrap_or_default();
    let mut subscription = Subscription::of_delta(TypeUrl::Endpoints, &more, &less, std::iter::empty());
    let mut model = BTreeSet::new();
    apply(&mut model, &more, &less);
    check_model(&subscription, &model);
    for (more, less) in lines {
        let added = subscription.update(&more, &less);
        apply(&mut model, &more, &less);
        check_model(&subscription, &model);
        assert!(added.names.iter().all(|name| model.contains(&**name) && more.contains(&&**name)));
    }
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
}

fn apply<'a>(model: &mut BTreeSet<&'a str>, more: &[&'a str], less: &[&'a str]) {
    model.extend(more);
    model.retain(|name| !less.contains(name));
}

fn check_model(subscription: &Subscription, model: &BTreeSet<&str>) {
    assert_eq!(subscription.wildcard(), model.contains("*"));
    let names: Vec<&str> = subscription.names().iter().map(|name| &**name).collect();
    assert_eq!(names, model.iter().copied().filter(|name| *name != "*").collect::<Vec<_>>());
    assert!(model.iter().all(|name| subscription.covers(name)));
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn replay(target: &str, check: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz").join(target);
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{target} has no corpus");
        for file in files {
            // The name of the test's last line, should it panic.
            println!("{}", file.display());
            check(&std::fs::read(&file).unwrap());
        }
    }

    #[test]
    fn the_corpus_of_requests_holds() {
        replay("requests", requests);
    }

    #[test]
    fn the_corpus_of_subscriptions_holds() {
        replay("subscriptions", subscriptions);
    }
}
