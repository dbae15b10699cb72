//! Parts of traffic policies that DestinationRules, Sidecars and the mesh config share: pools, outliers, balancing, client TLS.

use std::collections::BTreeSet;

use super::field_context::FieldContext;
use super::locality::check_locality;
use super::quantity::{count_fault, whole_percent_fault};
use crate::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};
use crate::kinds::destination_rule::{
    ConnectionPoolSettings, ConsistentHash, H2UpgradePolicy, HashAlgorithm, HashKey, HttpCookie, HttpSettings,
    LbPolicy, LoadBalancerSettings, MagLev, OutlierDetection, TcpSettings, WarmupConfiguration,
};

pub(super) fn check_pool(at: &FieldContext<'_>, pool: &ConnectionPoolSettings) {
    if pool.http.is_none() && pool.tcp.is_none() {
        at.error("there is nothing in it; write tcp or http, or remove it");
    }
    at.if_set("http", pool.http.as_ref(), check_http);
    at.if_set("tcp", pool.tcp.as_ref(), check_tcp);
}

fn check_http(at: &FieldContext<'_>, http: &HttpSettings) {
    at.reject("http1MaxPendingRequests", count_fault(http.http1_max_pending_requests));
    at.reject("http2MaxRequests", count_fault(http.http2_max_requests));
    at.reject("maxRequestsPerConnection", count_fault(http.max_requests_per_connection));
    at.reject("maxRetries", count_fault(http.max_retries));
    at.check_duration("idleTimeout", http.idle_timeout);
    let both = http.h2_upgrade_policy == H2UpgradePolicy::Upgrade && http.use_client_protocol;
    at.reject_if(
        "useClientProtocol",
        both,
        "the client's protocol cannot be kept and upgraded too; remove this or h2UpgradePolicy",
    );
    at.reject("maxConcurrentStreams", count_fault(http.max_concurrent_streams));
}

fn check_tcp(at: &FieldContext<'_>, tcp: &TcpSettings) {
    at.reject("maxConnections", count_fault(tcp.max_connections));
    at.check_duration("connectTimeout", tcp.connect_timeout);
    at.check_duration("maxConnectionDuration", tcp.max_connection_duration);
    // 0s disables the timeout.
    let idle = tcp.idle_timeout.filter(|time| time.seconds != 0 || time.nanos.abs() >= 1_000_000);
    at.check_duration("idleTimeout", idle);
    at.if_set("tcpKeepalive", tcp.tcp_keepalive, |at, keepalive| {
        at.check_duration("time", keepalive.time);
        at.check_duration("interval", keepalive.interval);
    });
}

pub(super) fn check_outlier(at: &FieldContext<'_>, outlier: &OutlierDetection) {
    at.check_duration("baseEjectionTime", outlier.base_ejection_time);
    if outlier.consecutive_errors != 0 {
        at.field("consecutiveErrors").warn("without effect; use consecutive5xxErrors or consecutiveGatewayErrors");
    }
    let unsplit =
        !outlier.split_external_local_origin_errors && outlier.consecutive_local_origin_failures.unwrap_or(0) > 0;
    at.reject_if(
        "consecutiveLocalOriginFailures",
        unsplit,
        "local failures are counted by themselves only with splitExternalLocalOriginErrors: true; set that too",
    );
    at.check_duration("interval", outlier.interval);
    at.unfit_field("maxEjectionPercent", whole_percent_fault(outlier.max_ejection_percent));
    at.unfit_field("minHealthPercent", whole_percent_fault(outlier.min_health_percent));
}

pub(super) fn check_load_balancer(
    at: &FieldContext<'_>,
    balancer: &LoadBalancerSettings,
    outlier: Option<&OutlierDetection>,
) {
    if let Some(LbPolicy::ConsistentHash(hash)) = &balancer.policy {
        check_hash(&at.field("consistentHash"), hash);
    }
    at.if_set("localityLbSetting", balancer.locality_lb_setting.as_ref(), |at, setting| {
        let fails_over = !setting.failover.is_empty() || !setting.failover_priority.is_empty();
        check_locality(at, setting);
        if fails_over && outlier.is_none() {
            at.warn("traffic fails over when endpoints are found to be bad; add outlierDetection beside loadBalancer");
        }
    });
    at.if_set("warmup", balancer.warmup, check_warmup);
}

fn check_hash(at: &FieldContext<'_>, hash: &ConsistentHash) {
    if let Some(HashKey::Cookie(cookie)) = &hash.key {
        check_cookie(&at.field("httpCookie"), cookie);
    }
    if hash.minimum_ring_size != 0 {
        let at = at.field("minimumRingSize");
        at.warn("deprecated; write ringHash: {minimumRingSize: ..} instead");
        if hash.algorithm.is_some() {
            at.error("ringHash and maglev have sizes of their own; remove this");
        }
    }
    if let Some(HashAlgorithm::MagLev(MagLev { table_size })) = hash.algorithm {
        let good = table_size < LARGEST_TABLE && is_prime(table_size);
        let what = format!(
            "{table_size} cannot be the size of the table; use a prime number below {LARGEST_TABLE}, such as 65537"
        );
        let at = at.field("maglev");
        // 0 is Envoy's default.
        if table_size == 0 {
            at.reject("tableSize", Some(what));
        } else {
            at.unfit_field("tableSize", (!good).then_some(what));
        }
    }
}

/// Envoy's limit, a prime itself.
const LARGEST_TABLE: u64 = 5_000_011;

/// 1 counts, as in Envoy.
fn is_prime(number: u64) -> bool {
    let odd_factors = (3..).step_by(2).take_while(|factor| factor * factor <= number);
    number == 2 || number % 2 == 1 && odd_factors.into_iter().all(|factor| !number.is_multiple_of(factor))
}

fn check_cookie(at: &FieldContext<'_>, cookie: &HttpCookie) {
    at.unfit_field_if("name", cookie.name.is_empty(), "a cookie needs a name");
    let mut names = BTreeSet::new();
    at.each("attributes", &cookie.attributes, |at, attribute| {
        if attribute.name.is_empty() {
            at.field("name").error("an attribute needs a name");
        } else if !names.insert(&attribute.name) {
            at.field("name").error(format!("{:?} is set twice; remove one", attribute.name));
        }
    });
}

fn check_warmup(at: &FieldContext<'_>, warmup: WarmupConfiguration) {
    at.reject_if("duration", warmup.duration.is_none(), "it is missing; say how long the warm-up takes");
    at.check_duration("duration", warmup.duration);
    let percent = warmup.minimum_percent.unwrap_or_default();
    at.unfit_field_if("minimumPercent", percent > 100.0, "not a percentage; use 0 to 100");
    let slow = warmup.aggression.is_some_and(|aggression| aggression < 1.0);
    at.reject_if("aggression", slow, "less than 1 would never warm up; use 1 or more");
}

pub(super) fn check_client_tls(at: &FieldContext<'_>, namespace: &str, tls: &ClientTlsSettings) {
    if let Some(resource) = tls.credential_name.strip_prefix("configmap://") {
        at.reject("credentialName", config_map_fault(resource, namespace));
    }
    let by_name = !tls.credential_name.is_empty();
    let own_names = !tls.ca_certificates.is_empty() || !tls.subject_alt_names.is_empty();
    if tls.insecure_skip_verify == Some(true) {
        let useless = match tls.mode {
            ClientTlsMode::Simple => own_names || by_name,
            ClientTlsMode::Mutual => own_names,
            ClientTlsMode::Disable | ClientTlsMode::IstioMutual => false,
        };
        at.reject_if(
            "insecureSkipVerify",
            useless,
            "nothing is verified, so that caCertificates, subjectAltNames and a CA in credentialName have no use; remove them or this",
        );
    }
    if by_name && matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual) {
        let files = [&tls.client_certificate, &tls.ca_certificates, &tls.private_key, &tls.ca_crl];
        at.reject_if(
            "credentialName",
            files.iter().any(|file| !file.is_empty()),
            "certificates come from the named Secret; remove clientCertificate, privateKey, caCertificates and caCrl, or this",
        );
    } else if tls.mode == ClientTlsMode::Mutual {
        at.reject_if(
            "clientCertificate",
            tls.client_certificate.is_empty(),
            "mode MUTUAL needs the path of a certificate",
        );
        at.reject_if("privateKey", tls.private_key.is_empty(), "mode MUTUAL needs the path of a private key");
    }
}

/// `namespace/name` of a ConfigMap.
fn config_map_fault(resource: &str, namespace: &str) -> Option<String> {
    let mut parts = resource.split('/');
    let good = parts.next() == Some(namespace) && parts.next().is_some_and(|name| !name.is_empty());
    (!good)
        .then(|| format!("{resource:?} is not a ConfigMap of the same namespace; write configmap://{namespace}/name"))
}

#[cfg(test)]
mod tests {
    use super::is_prime;

    #[test]
    fn sizes_of_tables() {
        assert!([1, 2, 3, 5, 65537, 5_000_011].into_iter().all(is_prime));
        assert!(![0, 4, 9, 65536, 65539 * 3].into_iter().any(is_prime));
    }
}
