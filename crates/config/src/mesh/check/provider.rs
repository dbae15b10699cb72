//! Extension providers of a mesh config. istiod keeps an invalid one, so that all diagnostics are warnings.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::super::dns_name::{is_label, name_fault, wildcard_name_fault};
use super::super::{ExtensionProvider, ProviderKind};
use super::port_fault;
use crate::diagnostic::Diagnostic;

pub(super) fn check(providers: &[ExtensionProvider]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let mut names = BTreeSet::new();
    for (at, provider) in providers.iter().enumerate() {
        let (name, mut faults) = (&provider.name, provider.faults());
        if name.is_empty() {
            faults.push("the name is missing".to_owned());
        } else if !names.insert(name) {
            faults.push(format!("a second provider is called {name:?}; it takes the place of the first"));
        }
        diagnostics.extend(
            faults.into_iter().map(|what| Diagnostic::warning(what).field(format!("extensionProviders[{at}]"))),
        );
    }
    diagnostics
}

impl ExtensionProvider {
    /// Its faults, apart from its name.
    pub fn faults(&self) -> Vec<String> {
        self.provider.as_ref().map_or_else(|| vec!["the kind of provider is missing".to_owned()], faults)
    }
}

fn faults(provider: &ProviderKind) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some((service, port)) = target(provider) {
        faults.extend(service_fault(service));
        faults.extend(port_fault(port));
    }
    match provider {
        ProviderKind::EnvoyExtAuthzHttp(http) => {
            faults.extend(status_fault(&http.status_on_error));
            let relative = !http.path_prefix.is_empty() && !http.path_prefix.starts_with('/');
            faults.extend(relative.then(|| format!("pathPrefix {:?} must begin with /", http.path_prefix)));
        }
        ProviderKind::EnvoyExtAuthzGrpc(grpc) => faults.extend(status_fault(&grpc.status_on_error)),
        ProviderKind::Lightstep(lightstep) if lightstep.access_token.is_empty() => {
            faults.push("accessToken must not be empty".into());
        }
        ProviderKind::OpenTelemetry(otel) if otel.http.is_some() && otel.grpc.is_some() => {
            faults.push("http and grpc exclude each other; keep one of them".into());
        }
        _ => {}
    }
    faults
}

/// The service that proxies call. `None`: none.
fn target(provider: &ProviderKind) -> Option<(&str, u32)> {
    Some(match provider {
        ProviderKind::EnvoyExtAuthzHttp(p) => (p.service.as_str(), p.port),
        ProviderKind::EnvoyExtAuthzGrpc(p) => (p.service.as_str(), p.port),
        ProviderKind::Zipkin(p) => (p.service.as_str(), p.port),
        ProviderKind::Lightstep(p) => (p.service.as_str(), p.port),
        ProviderKind::Datadog(p) => (p.service.as_str(), p.port),
        ProviderKind::OpenCensus(p) => (p.service.as_str(), p.port),
        ProviderKind::SkyWalking(p) => (p.service.as_str(), p.port),
        ProviderKind::OpenTelemetry(p) => (p.service.as_str(), p.port),
        ProviderKind::EnvoyHttpAls(p) => (p.service.as_str(), p.port),
        ProviderKind::EnvoyTcpAls(p) => (p.service.as_str(), p.port),
        ProviderKind::EnvoyOtelAls(p) => (p.service.as_str(), p.port),
        ProviderKind::Sds(p) => (p.service.as_str(), p.port),
        ProviderKind::Stackdriver(_) | ProviderKind::Prometheus(_) | ProviderKind::EnvoyFileAccessLog(_) => {
            return None;
        }
    })
}

/// `[namespace/]host`, or an IP address.
fn service_fault(service: &str) -> Option<String> {
    let Some((namespace, host)) = service.split_once('/') else {
        return if service.parse::<IpAddr>().is_ok() { None } else { name_fault(service) };
    };
    if !is_label(namespace) && !["*", ".", "~"].contains(&namespace) {
        return Some(format!("{namespace:?} is not a namespace"));
    }
    if host != "*" && !host.contains('.') {
        return Some(format!("{host:?} is a short name; write the full one"));
    }
    wildcard_name_fault(host)
}

fn status_fault(status: &str) -> Option<String> {
    let known = status.is_empty() || status.parse::<u16>().is_ok_and(|code| (100..600).contains(&code));
    (!known).then(|| format!("statusOnError {status:?} is not an HTTP status"))
}
