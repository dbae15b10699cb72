//! VirtualService examples: every field once, every alternative, and rejected ones.

use super::*;
use crate::kinds::example::{check_enum, example, parse_error};
use crate::kinds::string_match::StringMatch;

fn route(yaml: &str) -> HttpRoute {
    example(yaml)
}

#[test]
fn matches_of_http_routes() {
    let service: VirtualService = example(
        r#"
hosts: [cart.shop.svc.cluster.local, "*.example.com"]
gateways: [mesh, istio-system/public]
exportTo: [".", bank]
http:
- name: by-everything
  match:
  - name: all
    uri: {prefix: /cart}
    scheme: {exact: https}
    method: {regex: "GET|HEAD"}
    authority: {exact: example.com}
    headers: {x-user: {exact: jane}, x-any: {}}
    port: 8080
    sourceLabels: {app: web}
    gateways: [mesh]
    queryParams: {debug: {exact: "true"}}
    ignoreUriCase: true
    withoutHeaders: {x-internal: {}}
    sourceNamespace: shop
    statPrefix: cart
"#,
    );
    assert_eq!(service.hosts, ["cart.shop.svc.cluster.local", "*.example.com"]);
    assert_eq!(service.gateways, ["mesh", "istio-system/public"]);
    assert_eq!(service.export_to, [".", "bank"]);
    let text = |text: &str| text.to_owned();
    let expected = HttpMatchRequest {
        name: text("all"),
        uri: Some(StringMatch::Prefix(text("/cart"))),
        scheme: Some(StringMatch::Exact(text("https"))),
        method: Some(StringMatch::Regex(text("GET|HEAD"))),
        authority: Some(StringMatch::Exact(text("example.com"))),
        headers: [(text("x-user"), StringMatch::Exact(text("jane"))), (text("x-any"), StringMatch::Any)].into(),
        port: 8080,
        source_labels: [("app", "web")].into_iter().collect(),
        gateways: vec![text("mesh")],
        query_params: [(text("debug"), StringMatch::Exact(text("true")))].into(),
        ignore_uri_case: true,
        without_headers: [(text("x-internal"), StringMatch::Any)].into(),
        source_namespace: text("shop"),
        stat_prefix: text("cart"),
    };
    assert_eq!(service.http[0].name, "by-everything");
    assert_eq!(service.http[0].matches, [expected]);
}

#[test]
fn destinations_mirrors_and_headers() {
    let route = route(
        "
route:
- destination: {host: cart, subset: v1, port: {number: 8080}}
  weight: 75
  headers: {request: {set: {a: '1'}, add: {b: '2'}, remove: [c]}}
- destination: {host: cart, subset: v2}
  weight: 25
mirror: {host: shadow}
mirrorPercent: 10
mirrorPercentage: {value: 12.5}
mirrors:
- {destination: {host: copy}, percentage: {value: 0.1}}
headers: {response: {add: {server: none}}}
",
    );
    let cart = |subset: &str, port| Destination { host: "cart".into(), subset: subset.into(), port };
    assert_eq!(route.route[0].destination, Some(cart("v1", Some(PortSelector { number: 8080 }))));
    assert_eq!(route.route[1].destination, Some(cart("v2", None)));
    assert_eq!([route.route[0].weight, route.route[1].weight], [75, 25]);
    let request = route.route[0].headers.as_ref().and_then(|headers| headers.request.as_ref()).unwrap();
    assert_eq!((&request.set["a"][..], &request.add["b"][..], &request.remove[..]), ("1", "2", &["c".to_owned()][..]));
    assert_eq!(route.headers.unwrap().response.unwrap().add["server"], "none");
    assert_eq!(route.mirror.unwrap().host, "shadow");
    assert_eq!((route.mirror_percent, route.mirror_percentage), (Some(10), Some(Percent { value: 12.5 })));
    assert_eq!(route.mirrors[0].destination.as_ref().unwrap().host, "copy");
    assert_eq!(route.mirrors[0].percentage, Some(Percent { value: 0.1 }));
}

#[test]
fn timeouts_retries_and_cors() {
    let route = route(
        r#"
timeout: 1.5s
retries:
  attempts: 3
  perTryTimeout: 200ms
  retryOn: 5xx,reset
  retryRemoteLocalities: true
  retryIgnorePreviousHosts: false
  backoff: 10ms
corsPolicy:
  allowOrigin: [old.example]
  allowOrigins: [{exact: "https://a"}, {regex: ".*"}]
  allowMethods: [GET]
  allowHeaders: [x-a]
  exposeHeaders: [x-b]
  maxAge: 24h
  allowCredentials: true
  unmatchedPreflights: IGNORE
"#,
    );
    assert_eq!(route.timeout, Some(Duration::from_millis(1500)));
    let retries = HttpRetry {
        attempts: 3,
        per_try_timeout: Some(Duration::from_millis(200)),
        retry_on: "5xx,reset".into(),
        retry_remote_localities: Some(true),
        retry_ignore_previous_hosts: Some(false),
        backoff: Some(Duration::from_millis(10)),
    };
    assert_eq!(route.retries, Some(retries.into()));
    let cors = CorsPolicy {
        allow_origin: vec!["old.example".into()],
        allow_origins: vec![StringMatch::Exact("https://a".into()), StringMatch::Regex(".*".into())],
        allow_methods: vec!["GET".into()],
        allow_headers: vec!["x-a".into()],
        expose_headers: vec!["x-b".into()],
        max_age: Some(Duration::from_secs(86400)),
        allow_credentials: Some(true),
        unmatched_preflights: UnmatchedPreflights::Ignore,
    };
    assert_eq!(route.cors_policy, Some(cors.into()));
}

#[test]
fn faults() {
    let fault = |yaml: &str| example::<HttpFaultInjection>(yaml);
    let delay = fault("delay: {percent: 5, percentage: {value: 0.5}, fixedDelay: 3s}").delay.unwrap();
    assert_eq!((delay.percent, delay.percentage), (5, Some(Percent { value: 0.5 })));
    assert_eq!(delay.time, Some(DelayTime::Fixed(Duration::from_secs(3))));
    let delay = fault("delay: {exponentialDelay: 1s}").delay.unwrap();
    assert_eq!(delay.time, Some(DelayTime::Exponential(Duration::from_secs(1))));
    let abort = |yaml: &str| fault(yaml).abort.unwrap().error;
    assert_eq!(abort("abort: {httpStatus: 503, percentage: {value: 1}}"), Some(AbortError::HttpStatus(503)));
    assert_eq!(abort("abort: {grpcStatus: NOT_FOUND}"), Some(AbortError::GrpcStatus("NOT_FOUND".into())));
    assert_eq!(abort("abort: {http2Error: X}"), Some(AbortError::Http2Error("X".into())));
    assert_eq!(abort("abort: {}"), None);
}

#[test]
fn actions_in_order_of_precedence() {
    assert_eq!(route("{}").action(), HttpAction::Forward(&[]));
    let direct = route("{route: [{}], directResponse: {status: 503, body: {string: closed}}}");
    let HttpAction::DirectResponse(response) = direct.action() else { panic!("{direct:?}") };
    assert_eq!((response.status, &response.body), (503, &Some(HttpBody::String("closed".into()))));
    let redirect = route("{directResponse: {status: 503}, redirect: {uri: /new}}");
    assert!(matches!(redirect.action(), HttpAction::Redirect(redirect) if redirect.uri == "/new"));
    let delegate = route("{redirect: {}, delegate: {name: cart, namespace: shop}}");
    assert!(matches!(delegate.action(), HttpAction::Delegate(to) if to.name == "cart" && to.namespace == "shop"));
}

#[test]
fn bodies() {
    assert_eq!(example::<HttpBody>("{bytes: aGVsbG8=}"), HttpBody::Bytes(BodyBytes(b"hello".to_vec())));
    assert_eq!(example::<HttpBody>("{}"), HttpBody::Empty);
    assert!(parse_error::<HttpBody>("{bytes: hello}").starts_with("spec.bytes: not base64"));
}

#[test]
fn redirects_and_rewrites() {
    let redirect: HttpRedirect = example(
        "{uri: /a, authority: b, derivePort: FROM_REQUEST_PORT, scheme: https, redirectCode: 308, prefixRewrite: /c}",
    );
    let expected = HttpRedirect {
        uri: "/a".into(),
        authority: "b".into(),
        port: Some(RedirectPort::Derived(RedirectPortSelection::FromRequestPort)),
        scheme: "https".into(),
        redirect_code: 308,
        prefix_rewrite: "/c".into(),
    };
    assert_eq!(redirect, expected);
    assert_eq!(example::<HttpRedirect>("{port: 8443}").port, Some(RedirectPort::Number(8443)));
    let rewrite: HttpRewrite = example("{uri: /x, authority: y, uriRegexRewrite: {match: a(.*), rewrite: b}}");
    assert_eq!((&rewrite.uri[..], &rewrite.authority[..]), ("/x", "y"));
    assert_eq!(rewrite.uri_regex_rewrite, Some(RegexRewrite { pattern: "a(.*)".into(), rewrite: "b".into() }));
}

#[test]
fn tls_and_tcp_routes() {
    let service: VirtualService = example(
        "
tls:
- match:
  - sniHosts: [a.example.com]
    destinationSubnets: [10.0.0.0/8]
    port: 443
    sourceLabels: {app: web}
    gateways: [mesh]
    sourceNamespace: shop
  route: [{destination: {host: a}, weight: 100}]
tcp:
- match:
  - destinationSubnets: [10.1.0.0/16]
    port: 9000
    sourceSubnet: 10.2.0.0/16
    sourceLabels: {app: api}
    gateways: [gw]
    sourceNamespace: bank
  route: [{destination: {host: b, port: {number: 9000}}}]
",
    );
    let tls = TlsMatchAttributes {
        sni_hosts: vec!["a.example.com".into()],
        destination_subnets: vec!["10.0.0.0/8".into()],
        port: 443,
        source_labels: [("app", "web")].into_iter().collect(),
        gateways: vec!["mesh".into()],
        source_namespace: "shop".into(),
    };
    assert_eq!(service.tls[0].matches, [tls]);
    assert_eq!(service.tls[0].route[0].weight, 100);
    let tcp = L4MatchAttributes {
        destination_subnets: vec!["10.1.0.0/16".into()],
        port: 9000,
        source_subnet: "10.2.0.0/16".into(),
        source_labels: [("app", "api")].into_iter().collect(),
        gateways: vec!["gw".into()],
        source_namespace: "bank".into(),
    };
    assert_eq!(service.tcp[0].matches, [tcp]);
    assert_eq!(service.tcp[0].route[0].destination.as_ref().unwrap().host, "b");
}

#[test]
fn enums() {
    check_enum(&[
        ("FROM_PROTOCOL_DEFAULT", RedirectPortSelection::FromProtocolDefault),
        ("FROM_REQUEST_PORT", RedirectPortSelection::FromRequestPort),
    ]);
    check_enum(&[
        ("UNSPECIFIED", UnmatchedPreflights::Unspecified),
        ("FORWARD", UnmatchedPreflights::Forward),
        ("IGNORE", UnmatchedPreflights::Ignore),
    ]);
}

#[test]
fn members_of_a_oneof_exclude_each_other() {
    let check = |yaml: &str, expected: &str| {
        let expected = format!("{expected} exclude each other; keep one of them");
        assert_eq!(parse_error::<VirtualService>(yaml), expected);
    };
    check("http: [{match: [{uri: {exact: /a, prefix: /b}}]}]", "spec.http[0].match[0].uri: exact and prefix");
    check("http: [{redirect: {port: 1, derivePort: 0}}]", "spec.http[0].redirect: port and derivePort");
    check(
        "http: [{fault: {delay: {fixedDelay: 1s, exponentialDelay: 1s}}}]",
        "spec.http[0].fault.delay: fixedDelay and exponentialDelay",
    );
    check(
        "http: [{fault: {abort: {httpStatus: 500, grpcStatus: X}}}]",
        "spec.http[0].fault.abort: httpStatus and grpcStatus",
    );
    check(
        "http: [{directResponse: {body: {string: a, bytes: aA==}}}]",
        "spec.http[0].directResponse.body: string and bytes",
    );
}

#[test]
fn wrong_values_are_named_with_their_field() {
    let check = |yaml: &str, start: &str| {
        let rejected = parse_error::<VirtualService>(yaml);
        assert!(rejected.starts_with(start), "{rejected}");
    };
    check("http: [{timeout: '5'}]", "spec.http[0].timeout: \"5\" is not a duration");
    check("http: [{route: [{weight: heavy}]}]", "spec.http[0].route[0].weight: ");
    check("http: [{match: [{port: -1}]}]", "spec.http[0].match[0].port: ");
    check("hosts: cart", "spec.hosts: ");
}
