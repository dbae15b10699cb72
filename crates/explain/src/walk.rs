//! The way of a request through one proxy after the other.

use std::net::IpAddr;
use std::sync::Arc;

use wire::envoy::config::core::v3::TrafficDirection;
use wire::envoy::config::listener::v3::{FilterChain, Listener};

use crate::explanation::{Course, HopSide, HopStep, RequestHop, RequestOutcome};
use crate::forward::{Branch, Destination, Forward, Passage};
use crate::network_filter::{self, Terminal};
use crate::request::{Claims, Connection, Facts, HttpMessage, Security, Token};
use crate::resources::ProxyResources;
use crate::{filter_chain, http_manager, listener, tls};

/// Far more than the endpoints that are followed; a loop of proxies ends here.
const HOPS: usize = 64;

pub(crate) type ProxyAt<'a> = &'a mut dyn FnMut(IpAddr) -> Option<Arc<ProxyResources>>;

/// What all hops share.
pub(crate) struct Walk<'a> {
    pub(crate) proxy_at: ProxyAt<'a>,
    pub(crate) token: &'a Token,
    pub(crate) hops: Vec<RequestHop>,
    /// The host that the client asked for, where nothing else names a destination.
    pub(crate) host: &'a str,
}

/// A request or connection that arrives at a proxy.
#[derive(Clone)]
pub(crate) struct Arrival {
    pub(crate) connection: Connection,
    /// `None`: bytes.
    pub(crate) http: Option<HttpMessage>,
    pub(crate) destination: Destination,
    pub(crate) at: Option<String>,
}

impl Walk<'_> {
    /// Through this proxy and all after it. The endings are in `course`.
    pub(crate) fn hop(&mut self, course: &mut Course, proxy: &ProxyResources, side: HopSide, arrival: &Arrival) {
        let index = self.hops.len();
        self.hops.push(RequestHop { proxy: proxy.proxy.name.clone(), side, at: arrival.at.clone(), steps: Vec::new() });
        if index > HOPS {
            course.end(RequestOutcome::Closed { reason: "the way has too many hops".to_owned() });
        } else {
            self.accepted(course, proxy, side, arrival);
        }
        self.hops[index].steps = std::mem::take(&mut course.steps);
    }

    fn accepted(&mut self, course: &mut Course, proxy: &ProxyResources, side: HopSide, arrival: &Arrival) {
        let Connection { destination, port, .. } = arrival.connection;
        let found = match side {
            HopSide::Client => listener::outbound(proxy, destination, port),
            HopSide::Gateway | HopSide::Server => listener::inbound(proxy, destination, port),
        };
        let Some((listener, reason)) = found else {
            let ports: Vec<String> = listener::ports(proxy).iter().map(ToString::to_string).collect();
            course.end(RequestOutcome::Closed {
                reason: format!(
                    "no listener of {} for port {port}; it listens on {}",
                    proxy.proxy.name,
                    ports.join(", ")
                ),
            });
            return;
        };
        let step = HopStep::new("listener", &listener.name).because(reason);
        course.step(step.of(proxy.objects::<Listener>(&listener.name, listener.metadata.as_ref())));
        let chosen = filter_chain::choose(listener, &arrival.connection);
        course.assume(chosen.depends_on);
        let Some(chain) = chosen.chain else {
            let what = match (&arrival.connection.security, listener.traffic_direction) {
                (Security::Plaintext, direction) if direction == TrafficDirection::Inbound as i32 => {
                    "no filter chain takes plaintext: mutual TLS is STRICT"
                }
                _ => "no filter chain matches",
            };
            course.step(HopStep::new("filter chain", "none").because(what));
            course.end(RequestOutcome::Closed { reason: format!("{what} ({})", proxy.proxy.name) });
            return;
        };
        let name = if chain.name.is_empty() { "(without a name)" } else { &chain.name };
        let why =
            if chosen.is_default { "the default: no other matches".to_owned() } else { filter_chain::describe(chain) };
        course.step(HopStep::new("filter chain", name).because(why));
        let (ends_tls, fails, reason) = tls::downstream(chain.transport_socket.as_ref(), &arrival.connection.security);
        if side != HopSide::Client || ends_tls {
            let subject = if ends_tls { "server TLS" } else { "transport" };
            course.step(HopStep::new(subject, if ends_tls { "on" } else { "off" }).because(reason));
        }
        if course
            .end_if(fails, RequestOutcome::Closed { reason: format!("TLS at {}: {reason}", proxy.proxy.name) })
            .is_break()
        {
            return;
        }
        let mut arrival = arrival.clone();
        let is_opaque = !ends_tls && arrival.connection.security != Security::Plaintext;
        if is_opaque {
            arrival.http = None;
        }
        if ends_tls
            && let Some(http) = &mut arrival.http
            && side == HopSide::Gateway
        {
            http.scheme = "https";
        }
        self.filtered(course, proxy, side, &arrival, (chain, is_opaque));
    }

    fn filtered(
        &mut self,
        course: &mut Course,
        proxy: &ProxyResources,
        side: HopSide,
        arrival: &Arrival,
        (chain, is_opaque): (&FilterChain, bool),
    ) {
        let facts = Facts {
            connection: &arrival.connection,
            http: None,
            claims: &Claims::Absent,
            remote: arrival.connection.source,
        };
        let Some(terminal) = network_filter::pass(course, proxy, chain, &facts) else { return };
        let passage = match (terminal, &arrival.http) {
            (Terminal::Tcp(clusters), http) => {
                course.step(HopStep::new("forward", "as TCP").because("the filter chain does not read HTTP"));
                let branch = |(percent, cluster)| Branch {
                    percent,
                    cluster,
                    http: http.clone(),
                    auto_host: false,
                    missing: 503,
                };
                Passage { branches: clusters.into_iter().map(branch).collect(), alpn: None, is_http: false }
            }
            (Terminal::Http(manager), Some(http)) => {
                http_manager::pass(course, proxy, &manager, (http, &arrival.connection), self.token)
            }
            (Terminal::Http(_), None) => {
                let what = if is_opaque { "TLS that does not end here" } else { "bytes that are not HTTP" };
                course.end(RequestOutcome::Closed { reason: format!("{what} arrive where HTTP is read") });
                return;
            }
        };
        for branch in &passage.branches {
            let mut own = course.branch(branch.percent);
            let forward = Forward { proxy, side, arrival, branch, passage: &passage, is_opaque };
            self.forward(&mut own, &forward);
            course.steps.append(&mut own.steps);
            course.endings.append(&mut own.endings);
        }
    }
}
