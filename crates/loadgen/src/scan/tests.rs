//! Responses cut at every byte, and bytes that are no response.

use prost::Message;
use wire::any::pack;
use wire::envoy::config::cluster::v3::Cluster;
use wire::envoy::config::listener::v3::filter::ConfigType;
use wire::envoy::config::listener::v3::{Filter, FilterChain, Listener};
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::{HttpConnectionManager, Rds};
use wire::envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource as Sent};
use wire::google::protobuf::Any;

use super::*;

fn sent(name: &str, resource: Any) -> Sent {
    Sent { name: name.into(), version: "v1".into(), resource: Some(resource), ..Default::default() }
}

fn frame(response: &DeltaDiscoveryResponse) -> Vec<u8> {
    let body = response.encode_to_vec();
    let mut frame = vec![0];
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

fn listener(route: &str) -> Any {
    let rds = Rds { route_config_name: route.into(), ..Default::default() };
    let manager = HttpConnectionManager { route_specifier: Some(RouteSpecifier::Rds(rds)), ..Default::default() };
    let filter = Filter { config_type: Some(ConfigType::TypedConfig(pack(&manager))), ..Default::default() };
    pack(&Listener {
        filter_chains: vec![FilterChain { filters: vec![filter], ..Default::default() }],
        ..Default::default()
    })
}

fn read(names: &mut NameTable, bytes: &[u8], step: usize) -> Vec<Response> {
    let (mut scan, mut found) = (ResponseScanner::default(), Vec::new());
    for chunk in bytes.chunks(step) {
        scan.feed(names, chunk, |_, response| found.push(response)).unwrap();
    }
    found
}

#[test]
fn names_are_found_wherever_the_bytes_are_cut() {
    let clusters = DeltaDiscoveryResponse {
        type_url: ResourceType::Cluster.url().into(),
        nonce: "n1".into(),
        system_version_info: "s".into(),
        resources: vec![
            sent("outbound|80||a", pack(&Cluster::default())),
            sent("b", pack(&Cluster { name: "b".into(), ..Default::default() })),
        ],
        removed_resources: vec!["gone".into()],
        ..Default::default()
    };
    let listeners = DeltaDiscoveryResponse {
        type_url: ResourceType::Listener.url().into(),
        resources: vec![sent("0.0.0.0_80", listener("80"))],
        ..Default::default()
    };
    let bytes = [frame(&clusters), frame(&listeners), frame(&DeltaDiscoveryResponse::default())].concat();
    for step in 1..bytes.len() {
        let mut names = NameTable::default();
        let found = read(&mut names, &bytes, step);
        let [first, second, empty] = &found[..] else { panic!("{} responses", found.len()) };
        assert_eq!((first.kind, first.nonce.as_str()), (Some(ResourceType::Cluster), "n1"));
        let text = |id| names.text(id).to_owned();
        assert_eq!(first.resources.iter().map(|r| text(r.name)).collect::<Vec<_>>(), ["outbound|80||a", "b"]);
        assert_eq!(text(first.resources[1].version), "v1");
        assert_eq!(first.removed.iter().map(|id| text(*id)).collect::<Vec<_>>(), ["gone"]);
        assert_eq!(second.resources[0].routes.as_ref().unwrap().iter().map(|id| text(*id)).collect::<Vec<_>>(), ["80"]);
        assert_eq!((empty.kind, empty.bytes), (None, 0));
    }
}

#[test]
fn rejects_malformed_input() {
    let mut names = NameTable::default();
    let mut feed = |bytes: &[u8]| ResponseScanner::default().feed(&mut names, bytes, |_, _| ());
    assert!(feed(&[1, 0, 0, 0, 1]).is_err(), "compressed");
    assert!(feed(&[0, 0, 0, 0, 3, 0x12, 0x50, 0x0a, 0x05]).is_err(), "longer than what holds it");
    assert!(feed(&[0, 0, 0, 0, 9, 0x17]).is_err(), "wire type 7");
}
