//! The proxy settings of a mesh config, as istiod validates them.

use super::super::dns_name::address_fault;
use super::super::{AuthenticationPolicy, PrivateKeyProvider, ProxyConfig, ProxyTracing, ServiceName, Tracer};
use super::port_fault;
use crate::diagnostic::Diagnostic;
use crate::duration::Duration;
use crate::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};

pub(super) fn check(config: &ProxyConfig) -> Vec<Diagnostic> {
    let mut faults = Vec::new();
    let mut reject = |field: &str, fault: Option<String>| faults.extend(fault.map(|what| (field.to_owned(), what)));
    reject("configPath", empty_fault(config.config_path.as_deref()));
    reject("binaryPath", empty_fault(config.binary_path.as_deref()));
    if let Some(ServiceName::Cluster(cluster)) = config.service_name() {
        reject("serviceCluster", empty_fault(Some(cluster)));
    }
    reject("drainDuration", drain_fault(config.drain_duration.unwrap_or_default()));
    reject("discoveryAddress", address_fault(config.discovery_address.as_deref().unwrap_or_default()));
    reject("statsdUdpAddress", optional_address_fault(&config.statsd_udp_address));
    reject("envoyMetricsServiceAddress", optional_address_fault(&config.envoy_metrics_service_address));
    if let Some(service) = &config.envoy_metrics_service {
        reject("envoyMetricsService.address", optional_address_fault(&service.address));
    }
    if let Some(service) = &config.envoy_access_log_service {
        reject("envoyAccessLogService.address", optional_address_fault(&service.address));
    }
    reject("proxyAdminPort", port_fault(config.proxy_admin_port.unwrap_or_default()));
    reject("statusPort", port_fault(config.status_port.unwrap_or_default()));
    reject("controlPlaneAuthPolicy", auth_policy_fault(config.control_plane_auth_policy));
    reject("privateKeyProvider", config.private_key_provider.as_ref().and_then(key_provider_fault));
    faults.extend(config.tracing.iter().flat_map(tracing_faults));
    let diagnostics =
        faults.into_iter().map(|(field, what)| Diagnostic::error(what).field(format!("defaultConfig.{field}")));
    diagnostics.chain(old_allocation_note(config)).chain(poll_delay_note(config)).collect()
}

fn empty_fault(text: Option<&str>) -> Option<String> {
    text.unwrap_or_default().is_empty().then(|| "must not be empty; remove the line to keep the default".into())
}

fn drain_fault(time: Duration) -> Option<String> {
    (time < Duration::from_secs(1) || time.nanos != 0).then(|| format!("{time} must be whole seconds, at least 1s"))
}

fn optional_address_fault(address: &str) -> Option<String> {
    if address.is_empty() { None } else { address_fault(address) }
}

fn auth_policy_fault(policy: Option<AuthenticationPolicy>) -> Option<String> {
    (policy == Some(AuthenticationPolicy::Inherit)).then(|| "INHERIT means nothing here; use NONE or MUTUAL_TLS".into())
}

fn key_provider_fault(provider: &PrivateKeyProvider) -> Option<String> {
    match provider {
        PrivateKeyProvider::Unset => Some("name a provider: cryptomb or qat".into()),
        PrivateKeyProvider::Cryptomb(polling) | PrivateKeyProvider::Qat(polling) => {
            polling.poll_delay.is_some_and(Duration::is_zero).then(|| "pollDelay must not be zero".into())
        }
    }
}

/// istiod rejects such a mesh config.
fn poll_delay_note(config: &ProxyConfig) -> Option<Diagnostic> {
    let (PrivateKeyProvider::Cryptomb(polling) | PrivateKeyProvider::Qat(polling)) =
        config.private_key_provider.as_ref()?
    else {
        return None;
    };
    let diagnostic = Diagnostic::warning("pollDelay is not set; 10ms is used");
    polling.poll_delay.is_none().then(|| diagnostic.field("defaultConfig.privateKeyProvider"))
}

fn tracing_faults(tracing: &ProxyTracing) -> Vec<(String, String)> {
    let mut faults = Vec::new();
    let mut reject =
        |field: &str, fault: Option<String>| faults.extend(fault.map(|what| (format!("tracing.{field}"), what)));
    match &tracing.tracer {
        Some(Tracer::Zipkin(zipkin)) => reject("zipkin.address", tracer_address_fault(&zipkin.address)),
        Some(Tracer::Datadog(datadog)) => reject("datadog.address", tracer_address_fault(&datadog.address)),
        Some(Tracer::Lightstep(lightstep)) => {
            reject("lightstep.address", address_fault(&lightstep.address));
            reject("lightstep.accessToken", lightstep.access_token.is_empty().then(|| "must not be empty".into()));
        }
        Some(Tracer::Stackdriver(_) | Tracer::OpenCensusAgent(_)) | None => {}
    }
    reject("tlsSettings", tracing.tls_settings.as_ref().and_then(tls_fault));
    faults
}

/// The agent substitutes the node's address for this variable.
fn tracer_address_fault(address: &str) -> Option<String> {
    address_fault(&address.replacen("$(HOST_IP)", "127.0.0.1", 1))
}

fn tls_fault(tls: &ClientTlsSettings) -> Option<String> {
    let by_name = !tls.credential_name.is_empty();
    let verified_by = !tls.ca_certificates.is_empty() || !tls.subject_alt_names.is_empty();
    let fault = match tls.mode {
        ClientTlsMode::Disable | ClientTlsMode::IstioMutual => return None,
        _ if tls.credential_name.starts_with("configmap://") => {
            "a configmap:// credential needs a namespace, which the mesh config has not"
        }
        ClientTlsMode::Simple if skips(tls) && (verified_by || by_name) => SKIPS,
        ClientTlsMode::Mutual if skips(tls) && verified_by => SKIPS,
        _ if by_name => {
            return (!files(tls).is_empty()).then(|| format!("{} cannot be written beside credentialName", files(tls)));
        }
        ClientTlsMode::Mutual if tls.client_certificate.is_empty() || tls.private_key.is_empty() => {
            "MUTUAL needs clientCertificate and privateKey"
        }
        _ => return None,
    };
    Some(fault.into())
}

const SKIPS: &str = "insecureSkipVerify and what certificates are verified by exclude each other";

fn skips(tls: &ClientTlsSettings) -> bool {
    tls.insecure_skip_verify == Some(true)
}

fn files(tls: &ClientTlsSettings) -> String {
    let written = [
        ("clientCertificate", &tls.client_certificate),
        ("privateKey", &tls.private_key),
        ("caCertificates", &tls.ca_certificates),
        ("caCrl", &tls.ca_crl),
    ];
    let names = written.into_iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name);
    names.collect::<Vec<_>>().join(" and ")
}

fn old_allocation_note(config: &ProxyConfig) -> Option<Diagnostic> {
    let name = "ISTIO_META_DNS_AUTO_ALLOCATE";
    config.proxy_metadata.contains_key(name).then(|| {
        Diagnostic::warning(format!("{name} is deprecated: addresses of ServiceEntries are allocated without it"))
            .field("defaultConfig.proxyMetadata")
    })
}
