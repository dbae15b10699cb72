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
    let delta = Request::decode(Variant::Delta, message.clone(), MAX_NAMES);
    check_delta(delta, DeltaDiscoveryRequest::decode(message.clone()).ok());
    let prost = DiscoveryRequest::decode(message.clone()).ok();
    match Request::decode(Variant::Sotw, message, MAX_NAMES) {
        Ok(Request::Sotw(request)) => assert_eq!(Some(*request), prost),
        Ok(_) => panic!("a request of the state of the world became a delta request"),
        Err(error) => check_rejected(&error, prost.is_some()),
    }
    assert!(began.elapsed() < SLOW, "it took {:?}", began.elapsed());
}

fn check_delta(request: Result<Request, RequestError>, prost: Option<DeltaDiscoveryRequest>) {
    match request {
        Ok(Request::Borrowed(request)) => {
            let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
            let copied = DeltaDiscoveryRequest {
                type_url: request.type_url().to_owned(),
                response_nonce: request.nonce().to_owned(),
                resource_names_subscribe: owned(request.subscribe()),
                resource_names_unsubscribe: owned(request.unsubscribe()),
                ..DeltaDiscoveryRequest::default()
            };
            assert_eq!(Some(copied), prost);
        }
        Ok(Request::Delta(request, mut versions)) => {
            let prost = prost.expect("prost decodes it too");
            let all = &prost.initial_resource_versions;
            assert_eq!(versions.names().collect::<BTreeSet<_>>(), all.keys().map(String::as_str).collect());
            versions.build_index();
            assert!(all.iter().all(|(name, version)| versions.has(name, version)));
            assert_eq!(*request, DeltaDiscoveryRequest { initial_resource_versions: [].into(), ..prost });
        }
        Ok(Request::Sotw(_)) => panic!("a delta request became one of the state of the world"),
        Err(error) => check_rejected(&error, prost.is_some()),
    }
}

fn check_rejected(error: &RequestError, prost_decodes: bool) {
    assert!(!(prost_decodes && matches!(error, RequestError::Malformed(_))), "{error}, but prost decodes it");
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
