//! Among a thousand objects, a filter and a VirtualService that Envoy rejects, and two certificates that no proxy may get: everything else flows, a
//! proxy that comes new serves, and after the fixes everything is in force.

use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use testkit::test_ca::{LeafCertificate, TestCa};
use testkit::{environment, port, say, skip};

use super::live::{Live, Proxy};
use super::secrets::tls_secret;
use super::{HOST, backend, curl};

#[test]
fn faulty_objects_among_many_harm_nothing_else() {
    if environment::envoy().is_none() {
        return skip("faulty objects of a gateway: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    if Command::new("curl").arg("--version").stdin(Stdio::null()).output().is_err() {
        return skip("faulty objects of a gateway: no curl");
    }
    run(check).unwrap_or_else(|e| panic!("{e:#}"));
}

#[test]
#[ignore = "measures: how long 50 edits take until Envoy answers with them, without and beside faulty objects"]
fn edits_beside_faulty_objects() {
    run(measure).unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run(scenario: fn([u16; 5]) -> Result<()>) -> Result<()> {
    let mut ports = [backend("cart").await?, 0, 0, 0, 0];
    for it in &mut ports[1..] {
        *it = port::reserve()?;
    }
    tokio::task::spawn_blocking(move || scenario(ports)).await?
}

const MESH: &str = r#"
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: web, namespace: edge}
spec:
  selector: {app: edge}
  servers:
  - {port: {number: PLAIN, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*.example.com"]}
  - {port: {number: SECURE, name: https, protocol: HTTPS}, bind: 127.0.0.1, hosts: ["*.example.com"], tls: {mode: SIMPLE, credentialName: site}}
  - {port: {number: NEVER, name: https-never, protocol: HTTPS}, bind: 127.0.0.1, hosts: ["*.example.com"], tls: {mode: SIMPLE, credentialName: never}}
---
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: other, namespace: edge}
spec:
  selector: {app: edge}
  servers:
  - {port: {number: OTHER, name: http, protocol: HTTP}, bind: 127.0.0.1, hosts: ["*.example.com"]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: cart, namespace: shop}
spec:
  hosts: [cart.internal]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: CART}}]
"#;

/// Names of VirtualServices, and their Gateways. What a route configuration holds is held back as a whole, so that each has its own.
const GOOD: (&str, &str) = ("good", "web");
const BAD: (&str, &str) = ("bad", "other");
const OTHER_HOST: &str = "bad.example.com";

/// A VirtualService of a Gateway.
fn route((name, gateway): (&str, &str), host: &str, header: &str) -> String {
    format!(
        "{{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: {name}, namespace: edge}}, spec: {{hosts: [{host}], gateways: [{gateway}], \
         http: [{{headers: {{response: {{set: {{x-route: '{header}'}}}}}}, route: [{{destination: {{host: cart.internal, port: {{number: 80}}}}}}]}}]}}}}"
    )
}

/// A filter of the gateway with a script.
fn filter(script: &str) -> String {
    format!(
        r#"{{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {{name: lua, namespace: edge}}, spec: {{workloadSelector: {{labels: {{app: edge}}}},
    configPatches: [{{applyTo: HTTP_FILTER, match: {{context: GATEWAY, listener: {{filterChain: {{filter: {{name: envoy.filters.network.http_connection_manager, subFilter: {{name: envoy.filters.http.router}}}}}}}}}},
    patch: {{operation: INSERT_BEFORE, value: {{name: lua, typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua,
    default_source_code: {{inline_string: "{script}"}}}}}}}}}}]}}}}"#
    )
}

/// A thousand objects that concern the gateway.
fn many() -> String {
    (0..500).fold(String::new(), |mut text, n| {
        let host = format!("host-{n}.crowd.internal");
        write!(
            text,
            "{{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {{name: e{n}, namespace: crowd}}, spec: {{hosts: [{host}], resolution: STATIC, \
             ports: [{{number: 80, name: http, protocol: HTTP}}], endpoints: [{{address: 10.9.{}.{}}}]}}}}\n---\n\
             {{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {{name: r{n}, namespace: crowd}}, spec: {{host: {host}, \
             trafficPolicy: {{connectionPool: {{http: {{http2MaxRequests: 7}}}}}}}}}}\n---\n",
            n / 250,
            n % 250 + 1
        )
        .expect("a String grows as needed");
        text
    })
}

struct Site {
    live: Live,
    authority: TestCa,
    roots: String,
    plain: u16,
    secure: u16,
    never: u16,
    other: u16,
}

impl Site {
    fn start([cart, plain, secure, never, other]: [u16; 5]) -> Result<Site> {
        let authority = TestCa::new()?;
        let ports = [("PLAIN", plain), ("SECURE", secure), ("NEVER", never), ("OTHER", other), ("CART", cart)];
        let mesh = ports.iter().fold(MESH.to_owned(), |text, (word, port)| text.replace(word, &port.to_string()));
        let live = Live::start(&[
            ("mesh.yaml", &mesh),
            ("many.yaml", &many()),
            ("good.yaml", &route(GOOD, HOST, "first")),
            ("site.yaml", &tls_secret("site", &authority.host_certificate(HOST)?)),
            ("never.yaml", &tls_secret("never", &LeafCertificate { certificate: "none".into(), key: "none".into() })),
        ])?;
        let roots = live.path("roots.pem");
        std::fs::write(&roots, authority.root())?;
        Ok(Site { live, authority, roots: roots.display().to_string(), plain, secure, never, other })
    }

    fn proxy(&mut self, name: &str) -> Result<()> {
        self.live.proxy(&Proxy { name, kind: "router", account: "edge", app: "edge" })
    }

    /// The answer of a host, with its headers. 503: the gateway has no such route.
    fn answer(&self, host: &str, port: u16) -> Result<String> {
        let scheme = if [self.plain, self.other].contains(&port) { "http" } else { "https" };
        curl(&format!("{scheme}://{host}:{port}/"), &["--include", "--cacert", &self.roots])
    }

    fn wait_for(&self, host: &str, port: u16, part: &str) -> Result<()> {
        self.live.wait(&format!("{part} from {host}:{port}"), || {
            self.answer(host, port).is_ok_and(|answer| answer.contains(part))
        })
    }

    fn wait_for_nacks(&self, parts: &[&str]) -> Result<()> {
        let mut shown = String::new();
        let waited = self.live.wait("what proxies reject", || {
            shown = self.live.command(&["nacks"]).unwrap_or_default();
            parts.iter().all(|part| shown.contains(part))
        });
        waited.with_context(|| format!("{parts:?} in {shown}"))
    }
}

fn check(ports: [u16; 5]) -> Result<()> {
    let mut site = Site::start(ports)?;
    site.proxy("edge-1.edge")?;
    site.wait_for(HOST, site.plain, "x-route: first")?;
    site.wait_for(HOST, site.secure, "x-route: first")?;
    faults(&site)?;

    // Other changes flow, of the same and of other objects.
    site.live.write("good.yaml", &route(GOOD, HOST, "second"))?;
    site.wait_for(HOST, site.plain, "x-route: second")?;
    site.wait_for(HOST, site.secure, "x-route: second")?;

    // One that comes now serves, by itself.
    site.proxy("edge-2.edge")?;
    site.live.wait("a second proxy", || {
        let shown = site.live.command(&["proxies"]).unwrap_or_default();
        shown.lines().any(|line| line.starts_with("edge-2.edge") && line.contains("SYNCED"))
    })?;
    site.live.stop_first_proxy();
    site.wait_for(HOST, site.plain, "x-route: second")?;
    // It got the last valid pair.
    site.wait_for(HOST, site.secure, "x-route: second")?;
    ensure!(site.answer(HOST, site.never).is_err(), "a port whose certificate never was valid serves");
    repaired(&site)
}

fn measure(ports: [u16; 5]) -> Result<()> {
    let mut site = Site::start(ports)?;
    site.proxy("edge-1.edge")?;
    site.wait_for(HOST, site.plain, "x-route: first")?;
    edits(&site, "alone")?;
    faults(&site)?;
    edits(&site, "beside")?;
    repaired(&site)?;
    edits(&site, "repaired")
}

fn edits(site: &Site, name: &str) -> Result<()> {
    let mut times = Vec::new();
    for n in 0..50 {
        let header = format!("{name}-{n}");
        site.live.write("good.yaml", &route(GOOD, HOST, &header))?;
        let began = Instant::now();
        site.wait_for(HOST, site.plain, &format!("x-route: {header}"))?;
        times.push(began.elapsed());
    }
    times.sort();
    say(&format!("gateway: 50 edits, {name}: median {:?}, slowest {:?}", times[25], times[49]));
    Ok(())
}

fn faults(site: &Site) -> Result<()> {
    let [one, two] = [site.authority.host_certificate(HOST)?, site.authority.host_certificate(HOST)?];
    let mismatched = LeafCertificate { certificate: one.certificate, key: two.key };
    site.live.write("site.yaml", &tls_secret("site", &mismatched))?;
    site.live.write("lua.yaml", &filter("function envoy_on_request(handle) handle:oops("))?;
    site.wait_for_nacks(&[
        "script load error",
        "EnvoyFilter edge/lua",
        "patch.value.typed_config",
        "the last good version",
    ])?;
    site.live.write("bad.yaml", &route(BAD, OTHER_HOST, "%NOPE%"))?;
    site.wait_for_nacks(&["VirtualService edge/bad", "spec.http[0].headers.response.set"])?;
    for why in [
        "Secret edge/never, data[tls.crt] and data[tls.key]: ",
        "Secret edge/site, data[tls.crt] and data[tls.key]: the private key does not belong to the certificate",
    ] {
        site.live.wait(why, || site.live.log("server").contains(why))?;
    }
    Ok(())
}

fn repaired(site: &Site) -> Result<()> {
    let (site_pair, never) = (site.authority.host_certificate(HOST)?, site.authority.host_certificate(HOST)?);
    site.live
        .write("lua.yaml", &filter("function envoy_on_response(handle) handle:headers():add('x-lua', 'on') end"))?;
    site.live.write("bad.yaml", &route(BAD, OTHER_HOST, "repaired"))?;
    site.live.write("site.yaml", &tls_secret("site", &site_pair))?;
    site.live.write("never.yaml", &tls_secret("never", &never))?;
    site.wait_for(OTHER_HOST, site.other, "x-route: repaired")?;
    for port in [site.plain, site.secure, site.never] {
        site.wait_for(HOST, port, "x-lua: on")?;
    }
    site.wait_for_nacks(&["no proxy rejects anything"])
}
