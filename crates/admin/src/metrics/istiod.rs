//! Every metric of istiod: it is exported here with its type, its labels and its buckets, or the document says why not.

use super::document::{LEFT_OUT, exported};

/// Name, type, labels; buckets of a histogram.
const ISTIOD: &[(&str, &str, &[&str], &[f64])] = &[
    ("pilot_xds", "gauge", &["version"], &[]),
    ("pilot_xds_pushes", "counter", &["type"], &[]),
    ("pilot_xds_push_time", "histogram", &["type"], &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
    ("pilot_xds_send_time", "histogram", &[], &[0.01, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
    ("pilot_xds_config_size_bytes", "histogram", &["type"], &[1.0, 1e4, 1e6, 4e6, 1e7, 4e7]),
    ("pilot_debounce_time", "histogram", &[], &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
    ("pilot_pushcontext_init_seconds", "histogram", &[], &[0.01, 0.1, 0.5, 1.0, 3.0, 5.0]),
    ("pilot_proxy_queue_time", "histogram", &[], &[0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
    ("pilot_proxy_convergence_time", "histogram", &[], &[0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0]),
    ("pilot_push_triggers", "counter", &["type"], &[]),
    ("pilot_inbound_updates", "counter", &["type"], &[]),
    ("pilot_services", "gauge", &[], &[]),
    ("pilot_virt_services", "gauge", &[], &[]),
    ("pilot_vservice_dup_domain", "gauge", &[], &[]),
    ("pilot_destrule_subsets", "gauge", &[], &[]),
    ("pilot_duplicate_envoy_clusters", "gauge", &[], &[]),
    ("pilot_dns_cluster_without_endpoints", "gauge", &[], &[]),
    ("pilot_eds_no_instances", "gauge", &[], &[]),
    ("pilot_no_ip", "gauge", &[], &[]),
    ("pilot_endpoint_not_ready", "gauge", &[], &[]),
    ("endpoint_no_pod", "gauge", &[], &[]),
    ("pilot_conflict_inbound_listener", "gauge", &[], &[]),
    ("pilot_conflict_outbound_listener_tcp_over_current_tcp", "gauge", &[], &[]),
    ("pilot_total_xds_internal_errors", "counter", &[], &[]),
    ("pilot_total_xds_rejects", "counter", &["type"], &[]),
    ("pilot_xds_cds_reject", "gauge", &["node", "err"], &[]),
    ("pilot_xds_eds_reject", "gauge", &["node", "err"], &[]),
    ("pilot_xds_lds_reject", "gauge", &["node", "err"], &[]),
    ("pilot_xds_rds_reject", "gauge", &["node", "err"], &[]),
    ("pilot_xds_expired_nonce", "counter", &["type"], &[]),
    ("pilot_xds_write_timeout", "counter", &[], &[]),
    ("pilot_xds_recv_max", "gauge", &[], &[]),
    ("pilot_sds_certificate_errors_total", "counter", &[], &[]),
    ("pilot_total_rejected_configs", "counter", &["type", "name"], &[]),
    ("pilot_envoy_filter_status", "gauge", &["name", "patch", "result"], &[]),
    ("pilot_jwks_resolver_network_fetch_success_total", "counter", &[], &[]),
    ("pilot_jwks_resolver_network_fetch_fail_total", "counter", &[], &[]),
    ("pilot_info", "gauge", &["version"], &[]),
    ("istio_build", "gauge", &["component", "tag"], &[]),
    ("istiod_uptime_seconds", "gauge", &[], &[]),
    ("pilot_k8s_reg_events", "counter", &["type", "event"], &[]),
    ("pilot_k8s_cfg_events", "counter", &["type", "event"], &[]),
    ("pilot_k8s_endpoints_with_no_pods", "counter", &[], &[]),
    ("pilot_k8s_endpoints_pending_pod", "gauge", &[], &[]),
    ("pilot_k8s_proxies_with_no_service_targets", "counter", &["reason"], &[]),
    ("xds_cache_reads", "counter", &["type"], &[]),
    ("xds_cache_evictions", "counter", &["type"], &[]),
    ("xds_cache_size", "gauge", &[], &[]),
    ("xds_cache_dependent_config_size", "gauge", &["type"], &[]),
    ("provider_lookup_cluster_failures", "counter", &["name"], &[]),
    ("controller_sync_errors_total", "counter", &[], &[]),
    ("auto_registration_success_total", "counter", &[], &[]),
    ("auto_registration_updates_total", "counter", &[], &[]),
    ("auto_registration_unregister_total", "counter", &[], &[]),
    ("auto_registration_deletes_total", "counter", &[], &[]),
    ("auto_registration_errors_total", "counter", &[], &[]),
    ("istiod_managed_clusters", "gauge", &["cluster_type"], &[]),
    ("istiod_remote_cluster_sync_status", "gauge", &["cluster", "status"], &[]),
    ("remote_cluster_sync_timeouts_total", "counter", &[], &[]),
    ("remote_cluster_secret_events_total", "counter", &["event"], &[]),
    ("citadel_server_csr_count", "counter", &[], &[]),
    ("citadel_server_authentication_failure_count", "counter", &[], &[]),
    ("citadel_server_csr_parsing_err_count", "counter", &[], &[]),
    ("citadel_server_id_extraction_err_count", "counter", &[], &[]),
    ("citadel_server_csr_sign_err_count", "counter", &["error"], &[]),
    ("citadel_server_success_cert_issuance_count", "counter", &[], &[]),
    ("citadel_server_root_cert_expiry_timestamp", "gauge", &[], &[]),
    ("citadel_server_root_cert_expiry_seconds", "gauge", &[], &[]),
    ("citadel_server_cert_chain_expiry_timestamp", "gauge", &[], &[]),
    ("citadel_server_cert_chain_expiry_seconds", "gauge", &[], &[]),
    ("sidecar_injection_requests_total", "counter", &[], &[]),
    ("sidecar_injection_success_total", "counter", &[], &[]),
    ("sidecar_injection_failure_total", "counter", &[], &[]),
    ("sidecar_injection_skip_total", "counter", &[], &[]),
    ("sidecar_injection_time_seconds", "histogram", &[], &[0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0]),
    ("galley_validation_passed", "counter", &["group", "version", "resource"], &[]),
    ("galley_validation_failed", "counter", &["group", "version", "resource", "reason"], &[]),
    ("galley_validation_http_error", "counter", &["status"], &[]),
    ("galley_validation_config_updates", "counter", &[], &[]),
    ("galley_validation_config_update_error", "counter", &["reason"], &[]),
    ("galley_validation_config_load_error", "counter", &["reason"], &[]),
    ("webhook_patch_attempts_total", "counter", &["name"], &[]),
    ("webhook_patch_retries_total", "counter", &["name"], &[]),
    ("webhook_patch_failures_total", "counter", &["name", "reason"], &[]),
    ("pilot_worker_queue_depth", "gauge", &["queueID"], &[]),
    ("pilot_worker_queue_latency", "histogram", &["queueID"], &[0.01, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0]),
    ("pilot_worker_queue_duration", "histogram", &["queueID"], &[0.01, 0.1, 0.2, 0.5, 1.0, 3.0, 5.0]),
    ("grpc_server_started_total", "counter", &["grpc_type", "grpc_service", "grpc_method"], &[]),
    ("grpc_server_handled_total", "counter", &["grpc_type", "grpc_service", "grpc_method", "grpc_code"], &[]),
    ("grpc_server_msg_received_total", "counter", &["grpc_type", "grpc_service", "grpc_method"], &[]),
    ("grpc_server_msg_sent_total", "counter", &["grpc_type", "grpc_service", "grpc_method"], &[]),
    ("go_goroutines", "gauge", &[], &[]),
    ("go_memstats_heap_alloc_bytes", "gauge", &[], &[]),
    ("go_memstats_heap_inuse_bytes", "gauge", &[], &[]),
    ("go_memstats_stack_inuse_bytes", "gauge", &[], &[]),
    ("go_memstats_alloc_bytes_total", "counter", &[], &[]),
    ("go_memstats_mallocs_total", "counter", &[], &[]),
    ("process_cpu_seconds_total", "counter", &[], &[]),
    ("process_max_fds", "gauge", &[], &[]),
    ("process_open_fds", "gauge", &[], &[]),
    ("process_resident_memory_bytes", "gauge", &[], &[]),
    ("process_start_time_seconds", "gauge", &[], &[]),
    ("process_virtual_memory_bytes", "gauge", &[], &[]),
];

#[test]
fn every_metric_of_istiod_is_here_or_left_out_with_a_reason() {
    let ours = exported();
    let rows = LEFT_OUT.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let left_out: Vec<&str> = rows.flat_map(|names| names.split(", ")).collect();
    for (name, kind, labels, buckets) in ISTIOD {
        let is_left_out = left_out.contains(&&*format!("`{name}`"));
        let Some(metric) = ours.iter().find(|it| it.name == *name) else {
            assert!(is_left_out, "{name} is neither exported nor left out with a reason");
            continue;
        };
        assert!(!is_left_out, "{name} is exported, and the document says that it is not");
        let mut found: Vec<&str> = metric.labels.iter().map(String::as_str).collect();
        let mut expected = labels.to_vec();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!((metric.kind, found), (*kind, expected), "{name}");
        for bucket in *buckets {
            assert!(metric.buckets.contains(bucket), "{name} has no bucket {bucket}: {:?}", metric.buckets);
        }
    }
}
