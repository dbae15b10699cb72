//! From a cluster to its endpoints, and on to the proxies beside them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use wire::envoy::config::cluster::v3::Cluster;
use wire::istio::envoy::config::filter::http::alpn::v2alpha1::FilterConfig as Alpn;

use crate::cluster::{self, Candidate, Targets};
use crate::explanation::{Course, HopSide, HopStep, RequestOutcome};
use crate::request::{Connection, HttpMessage, Security};
use crate::resources::ProxyResources;
use crate::tls::{self, Transport};
use crate::truth::Truth;
use crate::walk::{Arrival, Walk};

/// Workloads that are followed to their proxies; replicas of one workload have equal proxies.
const FOLLOWED: usize = 8;

/// Endpoints that are listed.
const LISTED: usize = 20;

/// Where a request has left for: what `Served` says of it.
#[derive(Clone, Default)]
pub(crate) struct Destination {
    service: String,
    subset: Option<String>,
    endpoints: Vec<String>,
}

/// What the filters of a chain have decided.
pub(crate) struct Passage {
    pub(crate) branches: Vec<Branch>,
    pub(crate) alpn: Option<Alpn>,
    pub(crate) is_http: bool,
}

/// One cluster of a hop with what it gets.
pub(crate) struct Branch {
    pub(crate) percent: f64,
    pub(crate) cluster: String,
    /// `None`: bytes.
    pub(crate) http: Option<HttpMessage>,
    /// The host becomes that of the endpoint.
    pub(crate) auto_host: bool,
    /// The answer if the cluster does not exist.
    pub(crate) missing: u32,
}

/// A branch on its way out of a proxy.
pub(crate) struct Forward<'a> {
    pub(crate) proxy: &'a ProxyResources,
    pub(crate) side: HopSide,
    pub(crate) arrival: &'a Arrival,
    pub(crate) branch: &'a Branch,
    pub(crate) passage: &'a Passage,
    /// The client's own TLS goes on inside.
    pub(crate) is_opaque: bool,
}

impl Forward<'_> {
    fn fails(&self, status: u32, reason: String) -> RequestOutcome {
        if self.passage.is_http { RequestOutcome::failed(status, reason) } else { RequestOutcome::Closed { reason } }
    }
}

impl Walk<'_> {
    pub(crate) fn forward(&mut self, course: &mut Course, forward: &Forward<'_>) {
        let Branch { percent, cluster: name, missing, .. } = forward.branch;
        let Some(cluster) = forward.proxy.clusters.get(name) else {
            course.step(HopStep::new("cluster", name).because("the proxy does not have it"));
            course.end(forward.fails(*missing, format!("no cluster {name}")));
            return;
        };
        let mut step =
            HopStep::new("cluster", name).of(forward.proxy.objects::<Cluster>(name, cluster.metadata.as_ref()));
        if *percent < 100.0 {
            step = step.because(format!("weight: {percent:.2} % of the requests"));
        }
        let (service, subset) = names(forward.proxy, name);
        step.reasons.extend(subset.iter().map(|subset| format!("subset {subset} of {service}")));
        course.step(describe_rewrites(step, forward));
        let is_inbound = forward.side == HopSide::Server && !name.starts_with("outbound");
        match cluster::targets(forward.proxy, cluster) {
            _ if is_inbound => course.end(served(forward)),
            Targets::OriginalDestination
                if name.starts_with("outbound") && forward.arrival.connection.destination.is_some() =>
            {
                let candidate = original(&forward.arrival.connection);
                self.balance(course, forward, cluster, (vec![candidate], false), (service, subset));
            }
            Targets::OriginalDestination | Targets::Dynamic => {
                let Connection { destination, port, .. } = forward.arrival.connection;
                let to = destination.map_or_else(|| self.host.to_owned(), |ip| ip.to_string());
                course.end(RequestOutcome::Passthrough { to: format!("{to}:{port}") });
            }
            Targets::Endpoints { candidates, is_panic } => {
                if candidates.is_empty() && name == "BlackHoleCluster" {
                    course.end(RequestOutcome::Blackholed {
                        reason: "the cluster BlackHoleCluster has no endpoint".to_owned(),
                    });
                    return;
                }
                self.balance(course, forward, cluster, (candidates, is_panic), (service, subset));
            }
        }
    }

    fn balance(
        &mut self,
        course: &mut Course,
        forward: &Forward<'_>,
        cluster: &Cluster,
        (candidates, is_panic): (Vec<Candidate>, bool),
        (service, subset): (String, Option<String>),
    ) {
        course.step(describe_endpoints(cluster, &candidates, is_panic));
        let used: Vec<Candidate> = candidates.into_iter().filter(|it| it.percent > 0.0).collect();
        if used.is_empty() {
            course.end(forward.fails(
                503,
                format!("no healthy endpoint of {service}{}", subset.map(|it| format!(" {it}")).unwrap_or_default()),
            ));
            return;
        }
        let mut groups: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
        for candidate in used {
            // Replicas have equal labels, and so equal proxies, unless their security differs.
            let key = format!(
                "{:?} {}",
                candidate.workload,
                candidate.socket_match.as_ref().is_some_and(|it| !it.fields.is_empty())
            );
            groups
                .entry(if candidate.workload.is_some() { key } else { candidate.address.clone() })
                .or_default()
                .push(candidate);
        }
        for (at, group) in groups.values().enumerate() {
            let percent = group.iter().map(|it| it.percent).sum();
            let mut own = course.branch(percent);
            let endpoints = group.iter().map(|it| it.address.clone()).collect();
            let destination = Destination { service: service.clone(), subset: subset.clone(), endpoints };
            if let Some(first) = group.first() {
                self.connect(&mut own, forward, (cluster, first), destination, at < FOLLOWED);
            }
            course.steps.append(&mut own.steps);
            course.endings.append(&mut own.endings);
        }
    }

    /// To one endpoint, which stands for its group.
    fn connect(
        &mut self,
        course: &mut Course,
        forward: &Forward<'_>,
        (cluster, endpoint): (&Cluster, &Candidate),
        destination: Destination,
        is_followed: bool,
    ) {
        let transport = tls::upstream(forward.proxy, cluster, endpoint, forward.passage.alpn.as_ref());
        course.step(describe_transport(&transport, endpoint));
        let server = endpoint.ip.filter(|_| is_followed).and_then(|ip| (self.proxy_at)(ip));
        let Some(server) = server.filter(|it| !it.is_empty()) else {
            course.end(RequestOutcome::Served {
                service: destination.service,
                subset: destination.subset,
                endpoints: destination.endpoints,
                path: forward.branch.http.as_ref().map(|it| it.path.clone()),
                authority: forward.branch.http.as_ref().map(|it| it.authority.clone()),
            });
            return;
        };
        let rejected = tls::rejects_server(&transport, server.proxy.identity.as_deref());
        let reason = format!("TLS: {} rejects the certificate of {}", forward.proxy.proxy.name, server.proxy.name);
        // Only known identities are compared: what is unknown here is not known to be wrong.
        if rejected == Truth::Yes {
            course.end(forward.fails(503, reason));
            return;
        }
        let arrival = arrival(forward, &transport, endpoint, destination);
        let mut inner = course.branch(100.0);
        let side = if server.is_gateway() { HopSide::Gateway } else { HopSide::Server };
        self.hop(&mut inner, &server, side, &arrival);
        for mut ending in inner.endings {
            // A client's proxy answers in place of a server that hangs up.
            if let (RequestOutcome::Closed { reason }, true) = (&ending.outcome, forward.passage.is_http) {
                ending.outcome = RequestOutcome::failed(503, format!("upstream connection failed: {reason}"));
            }
            course.endings.push(ending);
        }
    }
}

fn arrival(forward: &Forward<'_>, transport: &Transport, endpoint: &Candidate, destination: Destination) -> Arrival {
    let mut http = forward.branch.http.clone();
    if let Some(http) = &mut http
        && forward.branch.auto_host
        && !endpoint.hostname.is_empty()
    {
        http.authority.clone_from(&endpoint.hostname);
    }
    let security = match &transport.security {
        Security::Plaintext if forward.is_opaque => forward.arrival.connection.security.clone(),
        own => own.clone(),
    };
    let connection = Connection {
        source: forward.proxy.proxy.address,
        destination: endpoint.ip,
        port: endpoint.port,
        is_http: http.is_some(),
        security,
    };
    let workload = endpoint.workload.as_ref().map(|it| format!(" ({it})")).unwrap_or_default();
    Arrival { connection, http, at: Some(format!("endpoint {}{workload}", endpoint.address)), destination }
}

/// By the application beside the proxy.
fn served(forward: &Forward<'_>) -> RequestOutcome {
    let Destination { service, subset, endpoints } = forward.arrival.destination.clone();
    let http = forward.branch.http.as_ref();
    RequestOutcome::Served {
        service,
        subset,
        endpoints,
        path: http.map(|it| it.path.clone()),
        authority: http.map(|it| it.authority.clone()),
    }
}

fn original(connection: &Connection) -> Candidate {
    let ip: Option<IpAddr> = connection.destination;
    Candidate {
        address: ip.map(|ip| std::net::SocketAddr::new(ip, connection.port).to_string()).unwrap_or_default(),
        ip,
        port: connection.port,
        hostname: String::new(),
        locality: String::new(),
        priority: 0,
        weight: 1,
        health: "healthy",
        workload: None,
        socket_match: None,
        percent: 100.0,
    }
}

/// `outbound|80|v1|reviews.shop.svc.cluster.local` is reviews.shop and v1.
fn names(proxy: &ProxyResources, cluster: &str) -> (String, Option<String>) {
    let parts: Vec<&str> = cluster.split('|').collect();
    let [_, _, subset, host] = parts.as_slice() else { return (cluster.to_owned(), None) };
    let service = host.strip_suffix(&format!(".svc.{}", proxy.proxy.domain)).unwrap_or(host);
    (service.to_owned(), (!subset.is_empty()).then(|| (*subset).to_owned()))
}

fn describe_rewrites(mut step: HopStep, forward: &Forward<'_>) -> HopStep {
    let (Some(before), Some(after)) = (&forward.arrival.http, &forward.branch.http) else { return step };
    if before.path != after.path {
        step = step.because(format!("path {} becomes {}", before.path, after.path));
    }
    if before.authority != after.authority {
        step = step.because(format!("host {} becomes {}", before.authority, after.authority));
    }
    for (name, value) in &after.headers {
        if !before.headers.contains(&(name.clone(), value.clone())) {
            step = step.because(format!("header {name} becomes {}", value.as_deref().unwrap_or("a computed value")));
        }
    }
    for (name, _) in &before.headers {
        if !after.headers.iter().any(|(own, _)| own == name) {
            step = step.because(format!("header {name} is removed"));
        }
    }
    step
}

fn describe_endpoints(cluster: &Cluster, candidates: &[Candidate], is_panic: bool) -> HopStep {
    let used = candidates.iter().filter(|it| it.percent > 0.0).count();
    let policy = wire::envoy::config::cluster::v3::cluster::LbPolicy::try_from(cluster.lb_policy);
    let policy = policy.map_or("unknown", |it| it.as_str_name());
    let mut step = HopStep::new("endpoints", format!("{used} of {} are used", candidates.len())).because(policy);
    if is_panic {
        step = step.because("too few are healthy, so that unhealthy ones are used too (panic)");
    }
    for it in candidates.iter().take(LISTED) {
        let mut parts = vec![
            it.address.clone(),
            it.health.to_owned(),
            format!("priority {}", it.priority),
            format!("weight {}", it.weight),
        ];
        parts.extend((!it.locality.is_empty()).then(|| it.locality.clone()));
        parts.extend(it.workload.clone());
        parts.push(if it.percent > 0.0 { format!("{:.2} %", it.percent) } else { "unused".to_owned() });
        step = step.because(parts.join(", "));
    }
    if candidates.len() > LISTED {
        step = step.because(format!("and {} more", candidates.len() - LISTED));
    }
    step
}

fn describe_transport(transport: &Transport, endpoint: &Candidate) -> HopStep {
    let to = endpoint.workload.as_deref().unwrap_or(&endpoint.address);
    let step = match &transport.security {
        Security::Plaintext => HopStep::new("client TLS", "off"),
        Security::Tls { server_name, alpn, certificate } => {
            let kind = if *certificate == crate::request::PeerCertificate::None { "TLS" } else { "mutual TLS" };
            let name = server_name.as_deref().unwrap_or("none");
            HopStep::new("client TLS", kind).because(format!("SNI {name}, ALPN {}", alpn.join(", ")))
        }
    };
    step.because(format!("to {to}, by {}", transport.chosen_by))
}
