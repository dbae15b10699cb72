//! DestinationRule examples: every field once, every alternative, and rejected ones.

use super::*;
use crate::kinds::client_tls::ClientTlsMode;
use crate::kinds::example::{check_enum, example, parse_error};

#[test]
fn a_rule_with_subsets_ports_and_a_selector() {
    let rule: DestinationRule = example(
        "
host: cart.shop.svc.cluster.local
exportTo: ['*']
workloadSelector: {matchLabels: {app: web}}
trafficPolicy:
  portLevelSettings:
  - port: {number: 8080}
    loadBalancer: {simple: RANDOM}
    connectionPool: {tcp: {maxConnections: 5}}
    outlierDetection: {interval: 1s}
    tls: {mode: SIMPLE}
  tunnel: {protocol: POST, targetHost: a.example, targetPort: 443}
  proxyProtocol: {version: V2}
  retryBudget: {percent: 25.5, minRetryConcurrency: 4, budgetInterval: 10s}
subsets:
- {name: v1, labels: {version: v1}}
- {name: v2, labels: {version: v2}, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}
",
    );
    assert_eq!(rule.host, "cart.shop.svc.cluster.local");
    assert_eq!(rule.export_to, ["*"]);
    assert_eq!(rule.workload_selector.unwrap().match_labels.get("app"), Some("web"));
    let policy = rule.traffic_policy.unwrap();
    let port = &policy.port_level_settings[0];
    assert_eq!(port.port, Some(PortSelector { number: 8080 }));
    assert_eq!(port.load_balancer.as_ref().unwrap().policy, Some(LbPolicy::Simple(SimpleLb::Random)));
    assert_eq!(port.connection_pool.as_ref().unwrap().tcp.as_ref().unwrap().max_connections, 5);
    assert_eq!(port.outlier_detection.as_ref().unwrap().interval, Some(Duration::from_secs(1)));
    assert_eq!(port.tls.as_ref().unwrap().mode, ClientTlsMode::Simple);
    let tunnel = TunnelSettings { protocol: "POST".into(), target_host: "a.example".into(), target_port: 443 };
    assert_eq!(policy.tunnel, Some(tunnel));
    assert_eq!(policy.proxy_protocol, Some(ProxyProtocol { version: ProxyProtocolVersion::V2 }));
    let budget =
        RetryBudget { percent: Some(25.5), min_retry_concurrency: 4, budget_interval: Some(Duration::from_secs(10)) };
    assert_eq!(policy.retry_budget, Some(budget));
    assert_eq!(rule.subsets.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["v1", "v2"]);
    assert_eq!(rule.subsets[0].labels.get("version"), Some("v1"));
    assert_eq!(rule.subsets[1].traffic_policy.as_ref().unwrap().tls.as_ref().unwrap().mode, ClientTlsMode::IstioMutual);
}

#[test]
fn load_balancing() {
    let settings: LoadBalancerSettings = example(
        "
simple: ROUND_ROBIN
warmupDurationSecs: 30s
warmup: {duration: 60s, minimumPercent: 20, aggression: 1.5}
localityLbSetting:
  enabled: true
  distribute: [{from: r1/*, to: {r1/*: 80, r2/*: 20}}]
  failover: [{from: r1, to: r2}]
  failoverPriority: [topology.istio.io/network]
zoneAwareLbSetting:
  enabled: false
  failover: [{from: r1, to: r3}]
  failoverPriority: [a]
  minClusterSize: 6
",
    );
    let region = |from: &str, to: &str| Failover { from: from.into(), to: to.into() };
    let expected = LoadBalancerSettings {
        policy: Some(LbPolicy::Simple(SimpleLb::RoundRobin)),
        locality_lb_setting: Some(LocalityLoadBalancerSetting {
            distribute: vec![Distribute {
                from: "r1/*".into(),
                to: [("r1/*".to_owned(), 80), ("r2/*".to_owned(), 20)].into(),
            }],
            failover: vec![region("r1", "r2")],
            failover_priority: vec!["topology.istio.io/network".into()],
            enabled: Some(true),
        }),
        zone_aware_lb_setting: Some(ZoneAwareLoadBalancerSetting {
            enabled: Some(false),
            failover: vec![region("r1", "r3")],
            failover_priority: vec!["a".into()],
            min_cluster_size: Some(6),
        }),
        warmup_duration_secs: Some(Duration::from_secs(30)),
        warmup: Some(WarmupConfiguration {
            duration: Some(Duration::from_secs(60)),
            minimum_percent: Some(20.0),
            aggression: Some(1.5),
        }),
    };
    assert_eq!(settings, expected);
    assert_eq!(example::<LoadBalancerSettings>("{}").policy, None);
}

#[test]
fn consistent_hashing() {
    let hash = |yaml: &str| example::<ConsistentHash>(yaml);
    assert_eq!(hash("{httpHeaderName: x-user}").key, Some(HashKey::HeaderName("x-user".into())));
    assert_eq!(hash("{useSourceIp: true}").key, Some(HashKey::SourceIp(true)));
    assert_eq!(hash("{httpQueryParameterName: q}").key, Some(HashKey::QueryParameterName("q".into())));
    let cookie = HttpCookie {
        name: "user".into(),
        path: "/".into(),
        ttl: Some(Duration::ZERO),
        attributes: vec![CookieAttribute { name: "SameSite".into(), value: "Lax".into() }],
    };
    let read = hash("httpCookie: {name: user, path: /, ttl: 0s, attributes: [{name: SameSite, value: Lax}]}");
    assert_eq!(read.key, Some(HashKey::Cookie(cookie)));
    let ring = hash("{ringHash: {minimumRingSize: '7'}, minimumRingSize: 9}");
    assert_eq!(ring.algorithm, Some(HashAlgorithm::RingHash(RingHash { minimum_ring_size: 7 })));
    assert_eq!(ring.minimum_ring_size, 9);
    let maglev = hash("maglev: {tableSize: 65537}");
    assert_eq!(maglev.algorithm, Some(HashAlgorithm::MagLev(MagLev { table_size: 65537 })));
}

#[test]
fn connection_pools() {
    let pool: ConnectionPoolSettings = example(
        "
tcp:
  maxConnections: 100
  connectTimeout: 30ms
  tcpKeepalive: {probes: 3, time: 7200s, interval: 75s}
  maxConnectionDuration: 1h
  idleTimeout: 5m
http:
  http1MaxPendingRequests: 1
  http2MaxRequests: 2
  maxRequestsPerConnection: 3
  maxRetries: 4
  idleTimeout: 5s
  h2UpgradePolicy: UPGRADE
  useClientProtocol: true
  maxConcurrentStreams: 6
  http2KeepAlive: {interval: 7s, timeout: 8s}
",
    );
    let seconds = |n| Some(Duration::from_secs(n));
    let tcp = TcpSettings {
        max_connections: 100,
        connect_timeout: Some(Duration::from_millis(30)),
        tcp_keepalive: Some(TcpKeepalive { probes: 3, time: seconds(7200), interval: seconds(75) }),
        max_connection_duration: seconds(3600),
        idle_timeout: seconds(300),
    };
    let http = HttpSettings {
        http1_max_pending_requests: 1,
        http2_max_requests: 2,
        max_requests_per_connection: 3,
        max_retries: 4,
        idle_timeout: seconds(5),
        h2_upgrade_policy: H2UpgradePolicy::Upgrade,
        use_client_protocol: true,
        max_concurrent_streams: 6,
        http2_keep_alive: Some(ConnectionKeepalive { interval: seconds(7), timeout: seconds(8) }),
    };
    assert_eq!(pool, ConnectionPoolSettings { tcp: Some(tcp), http: Some(http) });
}

#[test]
fn outlier_detection() {
    let read: OutlierDetection = example(
        "
consecutiveErrors: 1
splitExternalLocalOriginErrors: true
consecutiveLocalOriginFailures: 2
consecutiveGatewayErrors: 0
consecutive5xxErrors: 4
interval: 5s
baseEjectionTime: 6s
maxEjectionPercent: 7
minHealthPercent: 8
outlierDetectionHttpErrorCodes: [429, 500]
",
    );
    let expected = OutlierDetection {
        consecutive_errors: 1,
        split_external_local_origin_errors: true,
        consecutive_local_origin_failures: Some(2),
        consecutive_gateway_errors: Some(0),
        consecutive_5xx_errors: Some(4),
        interval: Some(Duration::from_secs(5)),
        base_ejection_time: Some(Duration::from_secs(6)),
        max_ejection_percent: 7,
        min_health_percent: 8,
        outlier_detection_http_error_codes: vec![429, 500],
    };
    assert_eq!(read, expected);
    assert_eq!(example::<OutlierDetection>("consecutive_5xx_errors: 4").consecutive_5xx_errors, Some(4));
}

#[test]
fn client_tls() {
    let read: ClientTlsSettings = example(
        "
mode: MUTUAL
clientCertificate: /cert
privateKey: /key
caCertificates: /ca
credentialName: secret
subjectAltNames: [a]
sni: b
insecureSkipVerify: false
caCrl: /crl
",
    );
    let expected = ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        client_certificate: "/cert".into(),
        private_key: "/key".into(),
        ca_certificates: "/ca".into(),
        credential_name: "secret".into(),
        subject_alt_names: vec!["a".into()],
        sni: "b".into(),
        insecure_skip_verify: Some(false),
        ca_crl: "/crl".into(),
    };
    assert_eq!(read, expected);
}

#[test]
fn enums() {
    check_enum(&[
        ("UNSPECIFIED", SimpleLb::Unspecified),
        ("LEAST_CONN", SimpleLb::LeastConn),
        ("RANDOM", SimpleLb::Random),
        ("PASSTHROUGH", SimpleLb::Passthrough),
        ("ROUND_ROBIN", SimpleLb::RoundRobin),
        ("LEAST_REQUEST", SimpleLb::LeastRequest),
    ]);
    check_enum(&[
        ("DEFAULT", H2UpgradePolicy::Default),
        ("DO_NOT_UPGRADE", H2UpgradePolicy::DoNotUpgrade),
        ("UPGRADE", H2UpgradePolicy::Upgrade),
    ]);
    check_enum(&[
        ("DISABLE", ClientTlsMode::Disable),
        ("SIMPLE", ClientTlsMode::Simple),
        ("MUTUAL", ClientTlsMode::Mutual),
        ("ISTIO_MUTUAL", ClientTlsMode::IstioMutual),
    ]);
    check_enum(&[("V1", ProxyProtocolVersion::V1), ("V2", ProxyProtocolVersion::V2)]);
}

#[test]
fn members_of_a_oneof_exclude_each_other() {
    let check = |yaml: &str, expected: &str| {
        assert_eq!(
            parse_error::<LoadBalancerSettings>(yaml),
            format!("{expected} exclude each other; keep one of them")
        );
    };
    check("{simple: RANDOM, consistentHash: {}}", "spec: simple and consistentHash");
    check(
        "consistentHash: {useSourceIp: false, httpHeaderName: a}",
        "spec.consistentHash: httpHeaderName and useSourceIp",
    );
    check("consistentHash: {ringHash: {}, maglev: {}}", "spec.consistentHash: ringHash and maglev");
}
