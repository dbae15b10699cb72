//! The rules that scenarios put into the folder. Each names itself in a response header, so that a client sees when it holds.

/// The header that says which rules an answer went through.
pub(crate) const MARK: &str = "x-rules";

/// Rules and the name that marks them.
pub(crate) struct Rules {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Destinations by version.
const SUBSETS: &str = "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: web, namespace: shop}
spec:
  host: web.shop.svc.cluster.local
  subsets:
  - {name: v1, labels: {version: v1}}
  - {name: v2, labels: {version: v2}}
";

/// A host outside the mesh, by name and address.
pub(crate) const OUTSIDE_ENTRY: &str = "
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: outside, namespace: shop}
spec:
  hosts: [outside.example]
  location: MESH_EXTERNAL
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 10.78.0.254}]
";

fn rules(name: &str, http: &str, destination: &str) -> Rules {
    let text = format!(
        "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {{name: web, namespace: shop}}
spec:
  hosts: [web.shop.svc.cluster.local]
  http:
{http}
---
{destination}"
    );
    Rules {
        name: name.to_owned(),
        text: text.replace("MARK", &format!("headers: {{response: {{set: {{{MARK}: {name}}}}}}}")),
    }
}

fn destination(policy: &str) -> String {
    format!(
        "
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: web, namespace: shop}}
spec:
  host: web.shop.svc.cluster.local
  trafficPolicy: {{{policy}}}
"
    )
}

pub(crate) fn weights() -> Rules {
    let http = "
  - MARK
    route:
    - {destination: {host: web, subset: v1}, weight: 80}
    - {destination: {host: web, subset: v2}, weight: 20}";
    rules("weights", http, SUBSETS)
}

/// One destination and a modifier.
pub(crate) fn plain(name: &str, modifier: &str) -> Rules {
    let http = format!(
        "
  - MARK
    {modifier}
    route: [{{destination: {{host: web}}}}]"
    );
    rules(name, &http, SUBSETS)
}

pub(crate) fn faults() -> Rules {
    let fault = |value: &str, fault: &str| {
        format!(
            "
  - match: [{{headers: {{x-fault: {{exact: {value}}}}}}}]
    fault: {{{fault}}}
    route: [{{destination: {{host: web}}}}]"
        )
    };
    let http = [
        fault("delay", "delay: {fixedDelay: 500ms, percentage: {value: 100}}"),
        fault("abort", "abort: {httpStatus: 418, percentage: {value: 100}}"),
        fault("half", "abort: {httpStatus: 418, percentage: {value: 50}}"),
        "
  - MARK
    route: [{destination: {host: web}}]"
            .to_owned(),
    ];
    rules("faults", &http.concat(), SUBSETS)
}

pub(crate) fn mirror() -> Rules {
    let http = "
  - MARK
    route: [{destination: {host: web, subset: v1}}]
    mirror: {host: web, subset: v2}";
    rules("mirror", http, SUBSETS)
}

pub(crate) fn header_match() -> Rules {
    let http = "
  - match:
    - headers: {x-version: {exact: v2}}
    - headers: {x-version: {prefix: v2-}}
    MARK
    route: [{destination: {host: web, subset: v2}}]
  - MARK
    route: [{destination: {host: web, subset: v1}}]";
    rules("header-match", http, SUBSETS)
}

const TO_ALL: &str = "
  - MARK
    retries: {attempts: 0}
    route: [{destination: {host: web}}]";

pub(crate) fn hashed() -> Rules {
    rules("hashed", TO_ALL, &destination("loadBalancer: {consistentHash: {httpHeaderName: x-user}}"))
}

/// Outlier detection alone makes the client's zone the first choice.
pub(crate) fn failover() -> Rules {
    let policy = "outlierDetection: {consecutive5xxErrors: 2, interval: 200ms, baseEjectionTime: 60s, maxEjectionPercent: 100}, \
                  connectionPool: {tcp: {connectTimeout: 1s}}";
    rules("failover", TO_ALL, &destination(policy))
}

pub(crate) fn ejection() -> Rules {
    let policy = "loadBalancer: {simple: ROUND_ROBIN, localityLbSetting: {enabled: false}}, \
                  outlierDetection: {consecutive5xxErrors: 3, interval: 200ms, baseEjectionTime: 10s, maxEjectionPercent: 50}";
    rules("ejection", TO_ALL, &destination(policy))
}

pub(crate) fn registry_only(more: &str) -> Rules {
    let name = if more.is_empty() { "registry-only" } else { "registry-and-entry" };
    let sidecar = format!(
        "
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {{name: client, namespace: shop}}
spec:
  workloadSelector: {{labels: {{app: client}}}}
  outboundTrafficPolicy: {{mode: REGISTRY_ONLY}}
{more}"
    );
    rules(name, TO_ALL, &sidecar)
}
