//! Limits, timeouts and keepalive of a cluster's connections.

use config::kinds::destination_rule::{ConnectionPoolSettings, HttpSettings, RetryBudget, TcpKeepalive as Keepalive};
use model::Mesh;
use wire::envoy::config::cluster::v3::{
    UpstreamConnectionOptions,
    circuit_breakers::{Thresholds, thresholds},
};
use wire::envoy::config::core::v3::{HttpProtocolOptions as CommonOptions, KeepaliveSettings, TcpKeepalive};
use wire::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use wire::envoy::r#type::v3::Percent;

use super::policy::Draft;
use super::protocol;
use crate::proto::{duration, uint32};

const RETRY_PERCENT: f64 = 20.0;
const RETRY_CONCURRENCY: u32 = 3;

/// Absent or zero settings leave the current value.
pub(super) fn apply(draft: &mut Draft, mesh: &Mesh, pool: &ConnectionPoolSettings) {
    let (tcp, http) = (pool.tcp.as_ref(), pool.http.as_ref());
    if let Some(threshold) = threshold(draft) {
        limit(&mut threshold.max_connections, tcp.map(|tcp| tcp.max_connections));
        limit(&mut threshold.max_requests, http.map(|http| http.http2_max_requests));
        limit(&mut threshold.max_pending_requests, http.map(|http| http.http1_max_pending_requests));
        limit(&mut threshold.max_retries, http.map(|http| http.max_retries));
    }
    if let Some(timeout) = tcp.and_then(|tcp| tcp.connect_timeout.as_ref()) {
        draft.cluster.connect_timeout = Some(duration(timeout));
    }
    let own = tcp.and_then(|tcp| tcp.tcp_keepalive.as_ref());
    draft.cluster.upstream_connection_options = keepalive([mesh.config.tcp_keepalive.as_ref(), own]);
    connections(draft, pool);
    let wanted = http.and_then(|http| http.http2_keep_alive.as_ref());
    if let (Some(http2), Some(wanted)) = (protocol::http2_options(&mut draft.options), wanted) {
        http2.connection_keepalive = Some(KeepaliveSettings {
            interval: wanted.interval.as_ref().map(duration),
            timeout: wanted.timeout.as_ref().map(duration),
            ..KeepaliveSettings::default()
        });
    }
    if http.is_some_and(|http| http.use_client_protocol) {
        protocol::follow_client(&mut draft.options);
    }
}

pub(super) fn apply_retry_budget(draft: &mut Draft, budget: &RetryBudget) {
    let concurrency = Some(budget.min_retry_concurrency).filter(|&least| least > 0).unwrap_or(RETRY_CONCURRENCY);
    if let Some(threshold) = threshold(draft) {
        threshold.retry_budget = Some(thresholds::RetryBudget {
            budget_percent: Some(Percent { value: budget.percent.unwrap_or(RETRY_PERCENT) }),
            min_retry_concurrency: Some(uint32(concurrency)),
            ..thresholds::RetryBudget::default()
        });
    }
}

/// Later settings win, field by field; any of them enables keepalive.
pub(super) fn keepalive(settings: [Option<&Keepalive>; 2]) -> Option<UpstreamConnectionOptions> {
    let whole = |time: &config::duration::Duration| uint32(u32::try_from(time.seconds).unwrap_or(u32::MAX));
    let mut out = TcpKeepalive::default();
    let mut any = false;
    for wanted in settings.into_iter().flatten() {
        any = true;
        out.keepalive_probes = Some(wanted.probes).filter(|&probes| probes > 0).map(uint32).or(out.keepalive_probes);
        out.keepalive_time = wanted.time.as_ref().map(whole).or(out.keepalive_time);
        out.keepalive_interval = wanted.interval.as_ref().map(whole).or(out.keepalive_interval);
    }
    any.then(|| UpstreamConnectionOptions { tcp_keepalive: Some(out), ..UpstreamConnectionOptions::default() })
}

fn threshold(draft: &mut Draft) -> Option<&mut Thresholds> {
    draft.cluster.circuit_breakers.as_mut()?.thresholds.first_mut()
}

fn limit(field: &mut Option<wire::google::protobuf::UInt32Value>, wanted: Option<i32>) {
    if let Some(value) = wanted.and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0) {
        *field = Some(uint32(value));
    }
}

fn connections(draft: &mut Draft, pool: &ConnectionPoolSettings) {
    let (tcp, http) = (pool.tcp.as_ref(), pool.http.as_ref());
    let count = |of: fn(&HttpSettings) -> i32| {
        http.map(of).and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0).map(uint32)
    };
    let idle = http.and_then(|http| http.idle_timeout.as_ref()).or(tcp.and_then(|tcp| tcp.idle_timeout.as_ref()));
    let life = tcp.and_then(|tcp| tcp.max_connection_duration.as_ref());
    let (requests, streams) =
        (count(|http| http.max_requests_per_connection), count(|http| http.max_concurrent_streams));
    if idle.is_none() && life.is_none() && requests.is_none() && streams.is_none() {
        return;
    }
    let options = draft.options.get_or_insert_with(HttpProtocolOptions::default);
    options.common_http_protocol_options = Some(CommonOptions {
        idle_timeout: idle.map(duration),
        max_connection_duration: life.map(duration),
        max_requests_per_connection: requests,
        ..CommonOptions::default()
    });
    if let (Some(http2), Some(streams)) = (protocol::http2_options(&mut draft.options), streams) {
        http2.max_concurrent_streams = Some(streams);
    }
}
