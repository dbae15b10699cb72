//! The settings of the server, as checked values. Flags and environment variables become these in the program `meltemi`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ca::{KeyType, Lifetimes};
use history::HistoryLimits;
use ipnet::IpNet;
use sources::jwks::{AddressFilter, Schedule};
use sources::kube::{ApiAccess, EndpointKind, Pacing};

/// The ConfigMap of the mesh config.
pub const MESH_CONFIG_MAP: &str = "istio";

#[derive(Debug)]
pub struct ServerSettings {
    pub source: SourceSettings,
    pub mesh: MeshSettings,
    pub ports: PortSettings,
    pub debounce: DebounceSettings,
    pub streams: xds::Options,
    pub classes: views::ClassLimits,
    pub identity: IdentitySettings,
    pub jwks: JwksSettings,
    pub webhook: WebhookSettings,
    /// `None`: pods are not injected (INJECT_ENABLED).
    pub injection: Option<inject::ControlPlane>,
    /// MELTEMI_QUARANTINE: how long content that proxies reject is held back. `None`: it is not.
    pub quarantine: Option<Duration>,
    /// MELTEMI_MEMORY_LIMIT, in bytes. `None`: the limit of the container, or the memory of the machine, which are never exceeded.
    pub memory_limit: Option<i64>,
    /// `None`: no history is kept.
    pub history: Option<HistorySettings>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySettings {
    /// MELTEMI_HISTORY_BYTES, MELTEMI_HISTORY_AGE.
    pub limits: HistoryLimits,
}

#[derive(Debug, Default)]
pub struct WebhookSettings {
    /// MELTEMI_WEBHOOK_CLIENT_CA: roots of the clients that may call. `None`: everybody may.
    pub client_ca: Option<PathBuf>,
    /// MELTEMI_WEBHOOK_REACH: responses warn how many proxies an object reaches.
    pub reach: bool,
}

/// Where the objects are read from.
#[derive(Debug)]
pub enum SourceSettings {
    Folder(PathBuf),
    Cluster(Box<ClusterSettings>),
}

/// How objects become a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshSettings {
    /// `None`: the ConfigMap `istio` of `pod_namespace`, else the defaults.
    pub mesh_config: Option<PathBuf>,
    pub domain: String,
    pub cluster_id: String,
    pub pod_namespace: String,
    /// --revision, REVISION. Empty: none.
    pub revision: String,
    pub derive_endpoints: bool,
    pub trace_sampling: model::Percentage,
    pub variables: model::Variables,
    pub ingress_namespace: String,
    pub scope_gateways_to_namespace: bool,
    pub filter_gateway_clusters: bool,
    pub multiple_authorizers: bool,
    pub addresses: model::AddressRanges,
}

impl MeshSettings {
    pub fn environment(&self) -> model::Environment {
        model::Environment {
            domain: self.domain.clone(),
            cluster_id: self.cluster_id.clone(),
            pod_namespace: self.pod_namespace.clone(),
            derive_endpoints: self.derive_endpoints,
            trace_sampling: self.trace_sampling,
            variables: self.variables.clone(),
            ingress_namespace: self.ingress_namespace.clone(),
            scope_gateways_to_namespace: self.scope_gateways_to_namespace,
            filter_gateway_clusters: self.filter_gateway_clusters,
            multiple_authorizers: self.multiple_authorizers,
            addresses: self.addresses,
        }
    }
}

#[derive(Debug)]
pub struct PortSettings {
    pub grpc: PortSetting,
    pub secure_grpc: PortSetting,
    pub http: PortSetting,
    pub monitoring: PortSetting,
    pub https: PortSetting,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PortSetting {
    pub flag: &'static str,
    /// `None`: the flag is empty, the port is off.
    pub address: Option<ListenAddress>,
}

impl PortSetting {
    pub fn parse(flag: &'static str, text: &str) -> Result<PortSetting> {
        if text.is_empty() {
            return Ok(PortSetting { flag, address: None });
        }
        let address = text.parse().with_context(|| format!("{flag} {text:?} is not an address"))?;
        Ok(PortSetting { flag, address: Some(address) })
    }
}

/// `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddress {
    /// Empty: all addresses of the host.
    pub host: String,
    pub port: u16,
}

impl std::str::FromStr for ListenAddress {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<ListenAddress> {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let Some((host, port)) = parts else {
            bail!("write it like :15010 or 127.0.0.1:15010");
        };
        let host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(inner) => inner,
            None if host.contains(':') => bail!("write an IPv6 address in brackets, like [::1]:{port}"),
            None => host,
        };
        Ok(ListenAddress { host: host.to_owned(), port })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebounceSettings {
    /// PILOT_DEBOUNCE_AFTER.
    pub after: Duration,
    /// PILOT_DEBOUNCE_MAX.
    pub max: Duration,
    /// How long a new endpoint waits for others. `None`: endpoints are debounced like everything else, as in istiod.
    pub endpoints: Option<Duration>,
}

/// How the JSON Web Key Sets of token issuers are fetched.
#[derive(Debug)]
pub struct JwksSettings {
    pub guard: AddressFilter,
    pub schedule: Schedule,
}

/// The API server that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterSettings {
    pub access: ApiAccess,
    /// WATCHED_NAMESPACES and ISTIO_WATCH_NAMESPACE. Empty: all.
    pub namespaces: BTreeSet<Arc<str>>,
    /// PILOT_USE_ENDPOINT_SLICE.
    pub endpoints: EndpointKind,
    pub pacing: Pacing,
    /// --revision, REVISION. Empty: none.
    pub revision: Arc<str>,
    /// POD_NAME: the name of this replica. `None`: not set; the process generates one.
    pub pod_name: Option<String>,
    /// POD_IP: where other replicas reach this one. `None`: not set.
    pub pod_ip: Option<IpAddr>,
    /// MELTEMI_ACCESS_INTERVAL: how long the answer of a SubjectAccessReview is cached.
    pub access_cache_ttl: Duration,
    /// ENABLE_LEADER_ELECTION. Off: this replica always writes.
    pub leader_election: bool,
    /// PILOT_ENABLE_STATUS.
    pub status: bool,
    /// MELTEMI_BALANCE_STREAMS: a replica with more than its fair share of streams closes some, so that their proxies reconnect.
    pub balance: bool,
    /// PILOT_ENABLE_IP_AUTOALLOCATE.
    pub addresses: bool,
}

/// The ConfigMap with the mesh config of a revision: istiod's names.
pub fn mesh_config_map(revision: &str) -> Arc<str> {
    match revision {
        "" | "default" => MESH_CONFIG_MAP.into(),
        revision => format!("{MESH_CONFIG_MAP}-{revision}").into(),
    }
}

/// The CA, the accepted credentials, and what an identity allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentitySettings {
    /// The folder of the root and of the token signing key. `None`: neither the flag nor a home folder is set.
    pub state: Option<PathBuf>,
    /// ROOT_CA_DIR: the folder of a plugged-in CA.
    pub plugged: PathBuf,
    pub key: KeyType,
    /// CITADEL_SELF_SIGNED_CA_CERT_TTL.
    pub root_lifetime: Duration,
    /// CITADEL_SELF_SIGNED_ROOT_CERT_GRACE_PERIOD_PERCENTILE.
    pub grace_percent: u32,
    pub lifetimes: Lifetimes,
    /// TOKEN_AUDIENCES.
    pub audiences: Vec<String>,
    /// --jwks: keys of tokens that are accepted besides our own.
    pub jwks: Option<PathBuf>,
    /// TRUSTED_GATEWAY_CIDR.
    pub trusted_gateways: Vec<IpNet>,
    /// ISTIOD_CUSTOM_HOST: more names for the serving certificate.
    pub hosts: Vec<String>,
    /// XDS_AUTH.
    pub authenticate: bool,
    /// PILOT_ENABLE_XDS_IDENTITY_CHECK.
    pub check: bool,
    /// MELTEMI_WORKLOAD_SECRETS: the server generates keys for proxies without an agent.
    pub workload_secrets: bool,
    /// MELTEMI_XDS_IDENTITY=strict: node metadata must be proven by credentials.
    pub strict: bool,
    /// EXTERNAL_CA. `None`: this server signs.
    pub external: Option<ExternalCaSettings>,
    /// EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API: a Kubernetes signer signs for workloads.
    pub signer: Option<SignerSettings>,
}

/// A signer of the Kubernetes CSR API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerSettings {
    /// K8S_SIGNER: the signer of requests that name none. Empty: every request must name one.
    pub signer: String,
    /// CERT_SIGNER_DOMAIN: the prefix of a signer that a request names. Empty: requests may not name one.
    pub domain: String,
    /// PILOT_CERT_PROVIDER=k8s.io/SIGNER: the signer of the serving certificate. `None`: our own CA.
    pub serving: Option<String>,
    /// A file with roots of signers, besides those in the mesh config.
    pub roots: PathBuf,
}

/// An external CA that speaks istiod's certificate protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalCaSettings {
    /// CA_ADDR, `host:port`.
    pub address: String,
    /// MELTEMI_CA_SERVER_NAME: the name that its certificate must have. `None`: the host of the address.
    pub name: Option<String>,
    /// CA_ROOT_CA: the roots that verify the CA and the workloads. `None`: those of istio-csr, else the cluster's; and those of the system
    /// verify the CA too.
    pub roots: Option<PathBuf>,
    /// --tlsCertFile and --tlsKeyFile: the serving certificate of the secure port, since nothing is signed here.
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// The error where neither --stateDir nor a home folder is set.
pub const NO_STATE: &str = "there is no home folder to keep the root in; name a folder with --stateDir";
