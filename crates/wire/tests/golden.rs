//! Istio's messages compared with bytes from Istio's own code: field names and numbers must be equal.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Name};
use serde_json::{Value, json};
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig;
use wire::istio::networking::nds::v1::NameTable;
use wire::istio::security::Authorization;
use wire::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use wire::istio::workload::Address;
use wire::json::message_to_value;
use wire::stats::PluginConfig;

fn check<M: Message + Name + Default>(name: &str, bytes: &[u8], expected: &Value) {
    assert_eq!(decoded::<M>(name, bytes, expected).encode_to_vec(), bytes);
}

/// Go encodes the set field of a oneof after all others, prost in its position.
fn check_but_for_order<M: Message + Name + Default>(name: &str, bytes: &[u8], expected: &Value) {
    let mut again = decoded::<M>(name, bytes, expected).encode_to_vec();
    let mut bytes = bytes.to_vec();
    again.sort_unstable();
    bytes.sort_unstable();
    assert_eq!(again, bytes);
}

fn decoded<M: Message + Name + Default>(name: &str, bytes: &[u8], expected: &Value) -> M {
    assert_eq!(M::full_name(), name);
    let message = M::decode(bytes).expect("recorded bytes decode");
    assert_eq!(&message_to_value(&message), expected);
    message
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex")).collect()
}

fn base64(text: &str) -> Vec<u8> {
    STANDARD.decode(text).expect("base64")
}

#[test]
fn alpn_as_sidecars_receive_it() {
    check::<FilterConfig>(
        "istio.envoy.config.filter.http.alpn.v2alpha1.FilterConfig",
        &base64(
            "CiESDmlzdGlvLWh0dHAvMS4wEgVpc3RpbxIIaHR0cC8xLjAKIwgBEg5pc3Rpby1odHRwLzEuMRIFaXN0aW8SCGh0dHAvMS4xChcIAhIIaXN0aW8taDISBWlzdGlvEgJoMg==",
        ),
        &json!({"alpnOverride": [
            {"alpnOverride": ["istio-http/1.0", "istio", "http/1.0"]},
            {"upstreamProtocol": "HTTP11", "alpnOverride": ["istio-http/1.1", "istio", "http/1.1"]},
            {"upstreamProtocol": "HTTP2", "alpnOverride": ["istio-h2", "istio", "h2"]},
        ]}),
    );
}

/// Bytes of the parity case observe-metrics.
#[test]
fn stats_as_sidecars_receive_it() {
    check::<PluginConfig>(
        "stats.PluginConfig",
        &base64(
            "MAE6AggKQj8KHAoMcmVxdWVzdF9ob3N0EgxyZXF1ZXN0Lmhvc3QSDnJlcXVlc3RzX3RvdGFsGg9kZXN0aW5hdGlvbl9hcHBCERINcmVxdWVzdF9ieXRlcygBQiAKEwoFZXh0cmESCidjb25zdGFudCcSCW15X21ldHJpYw==",
        ),
        &json!({
            "disableHostHeaderFallback": true,
            "tcpReportingDuration": "10s",
            "metrics": [
                {"name": "requests_total", "dimensions": {"request_host": "request.host"}, "tagsToRemove": ["destination_app"]},
                {"name": "request_bytes", "drop": true},
                {"name": "my_metric", "dimensions": {"extra": "'constant'"}},
            ],
        }),
    );
}

#[test]
fn stats_with_every_field() {
    check::<PluginConfig>(
        "stats.PluginConfig",
        &hex(
            "080110ffffffffffffffffff011a017022013b2a013d30013a0808011080cab5ee0142130a060a016b12017612016e1a017422016d28014a080a0164120131180250015a02080162020802",
        ),
        &json!({
            "debug": true,
            "maxPeerCacheSize": -1,
            "statPrefix": "p",
            "fieldSeparator": ";",
            "valueSeparator": "=",
            "disableHostHeaderFallback": true,
            "tcpReportingDuration": "1.500s",
            "metrics": [{"dimensions": {"k": "v"}, "name": "n", "tagsToRemove": ["t"], "match": "m", "drop": true}],
            "definitions": [{"name": "d", "value": "1", "type": "HISTOGRAM"}],
            "reporter": "SERVER_GATEWAY",
            "rotationInterval": "1s",
            "gracefulDeletionInterval": "2s",
        }),
    );
}

#[test]
fn certificate_request_and_response() {
    check::<IstioCertificateRequest>(
        "istio.v1.auth.IstioCertificateRequest",
        &hex("0a0370656d1880a30522130a110a0a436572745369676e657212031a0161"),
        &json!({"csr": "pem", "validityDuration": "86400", "metadata": {"CertSigner": "a"}}),
    );
    check::<IstioCertificateResponse>(
        "istio.v1.auth.IstioCertificateResponse",
        &hex("0a046c6561660a04726f6f74"),
        &json!({"certChain": ["leaf", "root"]}),
    );
    let service =
        wire::pool().get_service_by_name("istio.v1.auth.IstioCertificateService").expect("the service is known");
    assert_eq!(service.methods().map(|m| m.name().to_owned()).collect::<Vec<_>>(), ["CreateCertificate"]);
}

#[test]
fn name_table() {
    check::<NameTable>(
        "istio.networking.nds.v1.NameTable",
        &hex("0a260a03612e62121f0a0831302e302e302e31120a4b756265726e657465731a01612201622a0161"),
        &json!({"table": {"a.b": {
            "ips": ["10.0.0.1"], "registry": "Kubernetes", "shortname": "a", "namespace": "b", "altHosts": ["a"],
        }}}),
    );
}

#[test]
fn workload_with_every_field() {
    check_but_for_order::<Address>(
        "istio.workload.Address",
        &hex(
            "0aa8010a016e12026e731a040a00000122036e65742801320274643a027361420b18a0750a060a016e1201684a026e6f5202636e5a02637260026a02776e70018201056e732f6170880101920101639a010f120d0a036e657412040a0000001818a2010175aa010168b201110a046e732f6812090a07085010903f1802ba0105080110f075c201090a017212017a1a0173c80101d2010f0a0165120a0a05742f782e59120101da01020803",
        ),
        &json!({"workload": {
            "name": "n",
            "namespace": "ns",
            "addresses": ["CgAAAQ=="],
            "network": "net",
            "tunnelProtocol": "HBONE",
            "trustDomain": "td",
            "serviceAccount": "sa",
            "waypoint": {"hostname": {"namespace": "n", "hostname": "h"}, "hboneMtlsPort": 15008},
            "node": "no",
            "canonicalName": "cn",
            "canonicalRevision": "cr",
            "workloadType": "POD",
            "workloadName": "wn",
            "nativeTunnel": true,
            "authorizationPolicies": ["ns/ap"],
            "status": "UNHEALTHY",
            "clusterId": "c",
            "networkGateway": {"address": {"network": "net", "address": "CgAAAA==", "length": 24}},
            "uid": "u",
            "hostname": "h",
            "services": {"ns/h": {"ports": [{"servicePort": 80, "targetPort": 8080, "appProtocol": "HTTP2"}]}},
            "applicationTunnel": {"protocol": "PROXY", "port": 15088},
            "locality": {"region": "r", "zone": "z", "subzone": "s"},
            "networkMode": "HOST_NETWORK",
            "extensions": [{"name": "e", "config": {"@type": "t/x.Y", "value": "AQ=="}}],
            "capacity": 3,
        }}),
    );
}

#[test]
fn service_with_every_field() {
    check_but_for_order::<Address>(
        "istio.workload.Address",
        &hex(
            "12550a016e12026e731a0168220d0a036e657412040a00000018182a07085010903f1802320373616e3a0b18a0750a060a016e12016842080a020106100218014803520f0a0165120a0a05742f782e5912010158016001",
        ),
        &json!({"service": {
            "name": "n",
            "namespace": "ns",
            "hostname": "h",
            "addresses": [{"network": "net", "address": "CgAAAA==", "length": 24}],
            "ports": [{"servicePort": 80, "targetPort": 8080, "appProtocol": "HTTP2"}],
            "subjectAltNames": ["san"],
            "waypoint": {"hostname": {"namespace": "n", "hostname": "h"}, "hboneMtlsPort": 15008},
            "loadBalancing": {"routingPreference": ["REGION", "NETWORK"], "mode": "FAILOVER", "healthPolicy": "ALLOW_ALL"},
            "ipFamilies": "DUAL",
            "extensions": [{"name": "e", "config": {"@type": "t/x.Y", "value": "AQ=="}}],
            "canonical": true,
            "ingressUseWaypoint": true,
        }}),
    );
}

#[test]
fn authorization_with_every_field() {
    let address = |last: u8| json!([{"address": STANDARD.encode([10, 0, 0, last]), "length": 32}]);
    check::<Authorization>(
        "istio.security.Authorization",
        &hex(
            "0a016e12026e73180220012a680a6612640a030a016112031201621a031a0163220222002a080a040a000001102032080a040a00000210203a080a040a000003102042080a040a00000410204a0350bb035201165a060a016e12017862060a016e1201796a0f0a0165120a0a05742f782e5912010130013a0f0a0165120a0a05742f782e59120101",
        ),
        &json!({
            "name": "n",
            "namespace": "ns",
            "scope": "WORKLOAD_SELECTOR",
            "action": "DENY",
            "groups": [{"rules": [{"matches": [{
                "namespaces": [{"exact": "a"}],
                "notNamespaces": [{"prefix": "b"}],
                "principals": [{"suffix": "c"}],
                "notPrincipals": [{"presence": {}}],
                "sourceIps": address(1),
                "notSourceIps": address(2),
                "destinationIps": address(3),
                "notDestinationIps": address(4),
                "destinationPorts": [80, 443],
                "notDestinationPorts": [22],
                "serviceAccounts": [{"namespace": "n", "serviceAccount": "x"}],
                "notServiceAccounts": [{"namespace": "n", "serviceAccount": "y"}],
                "extensions": [{"name": "e", "config": {"@type": "t/x.Y", "value": "AQ=="}}],
            }]}]}],
            "dryRun": true,
            "extensions": [{"name": "e", "config": {"@type": "t/x.Y", "value": "AQ=="}}],
        }),
    );
}
