//! The environment variables as the user wrote them. Nothing else reads the environment.

use std::ffi::OsString;

/// The variables that have a meaning, unparsed, by what they configure. `None`: not set, or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Env {
    pub workers: Option<String>,
    pub memory_limit: Option<String>,
    pub quarantine: Option<String>,
    pub webhook_client_ca: Option<String>,
    pub webhook_reach: Option<String>,
    pub mesh: MeshEnv,
    pub cluster: ClusterEnv,
    pub debounce: DebounceEnv,
    pub streams: StreamEnv,
    pub classes: ClassEnv,
    pub history: HistoryEnv,
    pub jwks: JwksEnv,
    pub injection: InjectionEnv,
    pub identity: IdentityEnv,
    pub admin: AdminEnv,
}

/// The variables of the mesh: how objects are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshEnv {
    pub cluster_id: Option<String>,
    pub pod_namespace: Option<String>,
    pub revision: Option<String>,
    pub trace_sampling: Option<String>,
    /// All of the environment: headers to extension providers may be taken from any.
    pub variables: model::Variables,
    pub ingress_namespace: Option<String>,
    pub scope_gateways_to_namespace: Option<String>,
    pub filter_gateway_clusters: Option<String>,
    pub multiple_authorizers: Option<String>,
    pub ipv4_range: Option<String>,
    pub ipv6_range: Option<String>,
}

/// The variables of the API server that is watched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterEnv {
    pub pod_name: Option<String>,
    pub pod_ip: Option<String>,
    pub leader_election: Option<String>,
    pub status: Option<String>,
    pub balance: Option<String>,
    pub addresses: Option<String>,
    pub watched_namespaces: Option<String>,
    pub watch_namespace: Option<String>,
    pub use_endpoint_slice: Option<String>,
    pub audit_interval: Option<String>,
    pub access_interval: Option<String>,
}

/// The variables of the history of resources.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryEnv {
    pub bytes: Option<String>,
    pub age: Option<String>,
    pub dir: Option<String>,
    pub dir_bytes: Option<String>,
}

/// The variables of the debounce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DebounceEnv {
    pub after: Option<String>,
    pub max: Option<String>,
    pub eds_debounce: Option<String>,
    pub endpoint_window: Option<String>,
}

/// The variables of streams.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEnv {
    pub push_throttle: Option<String>,
    pub max_requests_per_second: Option<String>,
    pub max_streams_per_address: Option<String>,
    pub max_streams_per_identity: Option<String>,
    pub subscription_changes_per_second: Option<String>,
    pub removal_grace: Option<String>,
    pub keepalive_interval: Option<String>,
    pub keepalive_timeout: Option<String>,
    pub max_streams: Option<String>,
    pub max_receive_size: Option<String>,
    pub max_buffered_per_address: Option<String>,
    pub max_kept_per_address: Option<String>,
    pub max_shared: Option<String>,
}

/// The variables of classes of proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassEnv {
    pub per_client: Option<String>,
    pub total: Option<String>,
}

/// The variables of JSON Web Key Sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JwksEnv {
    pub refresh: Option<String>,
    pub blocked: Option<String>,
    pub allowed: Option<String>,
}

/// The variables of sidecar injection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InjectionEnv {
    pub enabled: Option<String>,
    pub native_sidecars: Option<String>,
    pub platform: Option<String>,
    pub compliance_policy: Option<String>,
}

/// The variables of metrics and debug pages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminEnv {
    pub metrics_localhost_only: Option<String>,
    pub cpu_request: Option<String>,
    pub debug_on_http: Option<String>,
    pub debug_auth: Option<String>,
    pub debug_allowed: Option<String>,
    pub admin: Option<String>,
    pub admin_accounts: Option<String>,
}

/// The variables of identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityEnv {
    pub home: Option<String>,
    pub state_home: Option<String>,
    pub root_ca_dir: Option<String>,
    pub key_type: Option<String>,
    pub rsa_key_size: Option<String>,
    pub root_ttl: Option<String>,
    pub root_grace: Option<String>,
    pub default_ttl: Option<String>,
    pub max_ttl: Option<String>,
    pub workload_ttl: Option<String>,
    pub token_audiences: Option<String>,
    pub trusted_gateways: Option<String>,
    pub custom_host: Option<String>,
    pub xds_auth: Option<String>,
    pub identity_check: Option<String>,
    pub ecc_algorithm: Option<String>,
    pub workload_secrets: Option<String>,
    pub xds_identity: Option<String>,
    pub external_ca: Option<String>,
    pub ca_address: Option<String>,
    pub ca_root: Option<String>,
    pub ca_name: Option<String>,
    pub cert_provider: Option<String>,
    pub signer: Option<String>,
    pub signer_domain: Option<String>,
    pub proxy_config: Option<String>,
    pub probes: Option<String>,
}

impl Env {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub fn read() -> Env {
        let text = |word: OsString| word.into_string().ok();
        let all = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let mut env = Env::from_lookup(|name| std::env::var(name).ok());
        env.mesh.variables = model::Variables::new(all);
        env
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Env {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Env {
            workers: set("MELTEMI_WORKERS"),
            memory_limit: set("MELTEMI_MEMORY_LIMIT"),
            quarantine: set("MELTEMI_QUARANTINE"),
            webhook_client_ca: set("MELTEMI_WEBHOOK_CLIENT_CA"),
            webhook_reach: set("MELTEMI_WEBHOOK_REACH"),
            mesh: MeshEnv::from_lookup(set),
            cluster: ClusterEnv::from_lookup(set),
            debounce: DebounceEnv::from_lookup(set),
            streams: StreamEnv::from_lookup(set),
            classes: ClassEnv::from_lookup(set),
            history: HistoryEnv::from_lookup(set),
            jwks: JwksEnv::from_lookup(set),
            injection: InjectionEnv::from_lookup(set),
            identity: IdentityEnv::from_lookup(set),
            admin: AdminEnv::from_lookup(set),
        }
    }
}

impl MeshEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> MeshEnv {
        MeshEnv {
            cluster_id: set("CLUSTER_ID"),
            pod_namespace: set("POD_NAMESPACE"),
            revision: set("REVISION"),
            trace_sampling: set("PILOT_TRACE_SAMPLING"),
            variables: model::Variables::default(),
            ingress_namespace: set("K8S_INGRESS_NS"),
            scope_gateways_to_namespace: set("PILOT_SCOPE_GATEWAY_TO_NAMESPACE"),
            filter_gateway_clusters: set("PILOT_FILTER_GATEWAY_CLUSTER_CONFIG"),
            multiple_authorizers: set("PILOT_ENABLE_MULTIPLE_CUSTOM_AUTHZ_PROVIDERS"),
            ipv4_range: set("PILOT_IP_AUTOALLOCATE_IPV4_PREFIX"),
            ipv6_range: set("PILOT_IP_AUTOALLOCATE_IPV6_PREFIX"),
        }
    }
}

impl ClusterEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> ClusterEnv {
        ClusterEnv {
            pod_name: set("POD_NAME"),
            pod_ip: set("POD_IP"),
            leader_election: set("ENABLE_LEADER_ELECTION"),
            status: set("PILOT_ENABLE_STATUS"),
            balance: set("MELTEMI_BALANCE_STREAMS"),
            addresses: set("PILOT_ENABLE_IP_AUTOALLOCATE"),
            watched_namespaces: set("WATCHED_NAMESPACES"),
            watch_namespace: set("ISTIO_WATCH_NAMESPACE"),
            use_endpoint_slice: set("PILOT_USE_ENDPOINT_SLICE"),
            audit_interval: set("MELTEMI_AUDIT_INTERVAL"),
            access_interval: set("MELTEMI_ACCESS_INTERVAL"),
        }
    }
}

impl DebounceEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> DebounceEnv {
        DebounceEnv {
            after: set("PILOT_DEBOUNCE_AFTER"),
            max: set("PILOT_DEBOUNCE_MAX"),
            eds_debounce: set("PILOT_ENABLE_EDS_DEBOUNCE"),
            endpoint_window: set("MELTEMI_ENDPOINT_WINDOW"),
        }
    }
}

impl HistoryEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> HistoryEnv {
        HistoryEnv {
            bytes: set("MELTEMI_HISTORY_BYTES"),
            age: set("MELTEMI_HISTORY_AGE"),
            dir: set("MELTEMI_HISTORY_DIR"),
            dir_bytes: set("MELTEMI_HISTORY_DIR_BYTES"),
        }
    }
}

impl ClassEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> ClassEnv {
        ClassEnv { per_client: set("MELTEMI_MAX_CLASSES_PER_IDENTITY"), total: set("MELTEMI_MAX_CLASSES") }
    }
}

impl StreamEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> StreamEnv {
        StreamEnv {
            push_throttle: set("PILOT_PUSH_THROTTLE"),
            max_requests_per_second: set("PILOT_MAX_REQUESTS_PER_SECOND"),
            max_streams_per_address: set("MELTEMI_MAX_STREAMS_PER_ADDRESS"),
            max_streams_per_identity: set("MELTEMI_MAX_STREAMS_PER_IDENTITY"),
            subscription_changes_per_second: set("MELTEMI_SUBSCRIPTION_CHANGES_PER_SECOND"),
            removal_grace: set("MELTEMI_REMOVAL_PATIENCE"),
            keepalive_interval: set("GRPC_KEEPALIVE_INTERVAL"),
            keepalive_timeout: set("GRPC_KEEPALIVE_TIMEOUT"),
            // istiod's own spelling of gRPC.
            max_streams: set("ISTIO_GPRC_MAXSTREAMS"),
            max_receive_size: set("ISTIO_GPRC_MAXRECVMSGSIZE"),
            max_buffered_per_address: set("MELTEMI_MAX_BUFFERED_BYTES_PER_ADDRESS"),
            max_kept_per_address: set("MELTEMI_MAX_KEPT_BYTES_PER_ADDRESS"),
            max_shared: set("MELTEMI_MAX_SHARED_BYTES"),
        }
    }
}

impl JwksEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> JwksEnv {
        JwksEnv {
            refresh: set("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL"),
            blocked: set("BLOCKED_CIDRS_IN_JWKS_URIS"),
            allowed: set("MELTEMI_ALLOWED_CIDRS_IN_JWKS_URIS"),
        }
    }
}

impl InjectionEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> InjectionEnv {
        InjectionEnv {
            enabled: set("INJECT_ENABLED"),
            native_sidecars: set("ENABLE_NATIVE_SIDECARS"),
            platform: set("PLATFORM"),
            compliance_policy: set("COMPLIANCE_POLICY"),
        }
    }
}

impl AdminEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> AdminEnv {
        AdminEnv {
            metrics_localhost_only: set("METRICS_LOCALHOST_ACCESS_ONLY"),
            cpu_request: set("MELTEMI_CPU_REQUEST"),
            debug_on_http: set("ENABLE_DEBUG_ON_HTTP"),
            debug_auth: set("ENABLE_DEBUG_ENDPOINT_AUTH"),
            debug_allowed: set("DEBUG_ENDPOINT_AUTH_ALLOWED_NAMESPACES"),
            admin: set("UNSAFE_ENABLE_ADMIN_ENDPOINTS"),
            admin_accounts: set("MELTEMI_ADMIN_SERVICE_ACCOUNTS"),
        }
    }
}

impl IdentityEnv {
    fn from_lookup(set: impl Fn(&str) -> Option<String>) -> IdentityEnv {
        IdentityEnv {
            home: set("HOME"),
            state_home: set("XDG_STATE_HOME"),
            root_ca_dir: set("ROOT_CA_DIR"),
            key_type: set("CITADEL_SELF_SIGNED_CA_KEY_TYPE"),
            rsa_key_size: set("CITADEL_SELF_SIGNED_CA_RSA_KEY_SIZE"),
            root_ttl: set("CITADEL_SELF_SIGNED_CA_CERT_TTL"),
            root_grace: set("CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE"),
            default_ttl: set("DEFAULT_WORKLOAD_CERT_TTL"),
            max_ttl: set("MAX_WORKLOAD_CERT_TTL"),
            workload_ttl: set("PILOT_WORKLOAD_CERT_TTL"),
            token_audiences: set("TOKEN_AUDIENCES"),
            trusted_gateways: set("TRUSTED_GATEWAY_CIDR"),
            custom_host: set("ISTIOD_CUSTOM_HOST"),
            xds_auth: set("XDS_AUTH"),
            identity_check: set("PILOT_ENABLE_XDS_IDENTITY_CHECK"),
            ecc_algorithm: set("ECC_SIGNATURE_ALGORITHM"),
            workload_secrets: set("MELTEMI_WORKLOAD_SECRETS"),
            xds_identity: set("MELTEMI_XDS_IDENTITY"),
            external_ca: set("EXTERNAL_CA"),
            ca_address: set("CA_ADDR"),
            ca_root: set("CA_ROOT_CA"),
            ca_name: set("MELTEMI_CA_SERVER_NAME"),
            cert_provider: set("PILOT_CERT_PROVIDER"),
            signer: set("K8S_SIGNER"),
            signer_domain: set("CERT_SIGNER_DOMAIN"),
            proxy_config: set("PROXY_CONFIG"),
            probes: set("ISTIO_KUBE_APP_PROBERS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_variables_are_not_set() {
        let env = Env::from_lookup(|name| match name {
            "CLUSTER_ID" => Some(String::new()),
            "PILOT_DEBOUNCE_AFTER" => Some("5ms".into()),
            _ => None,
        });
        let debounce = DebounceEnv { after: Some("5ms".into()), ..DebounceEnv::default() };
        assert_eq!(env, Env { debounce, ..Env::default() });
    }
}
