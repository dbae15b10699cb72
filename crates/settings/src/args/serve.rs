//! The flags of `serve`, most of them istiod's.

use std::path::PathBuf;

use clap::ArgAction;

use super::boolean;

#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Folder of YAML and JSON files to serve, watched for changes [default: what the Kubernetes API server has]
    #[arg(long = "config", alias = "configDir", value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// How to reach the API server that is watched where no --config is given [default: $KUBECONFIG or the user's own, else the
    /// account of the pod]
    #[arg(long = "kubeconfig", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Revision of this control plane: which objects labelled istio.io/rev are its own, and ConfigMap istio-REVISION [default: $REVISION]
    #[arg(long = "revision", value_name = "NAME")]
    pub revision: Option<String>,
    /// Requests to the API server per second; twice as many may come at once
    #[arg(long = "kubernetesApiQPS", value_name = "NUMBER", default_value = "80")]
    pub api_rate: f32,
    /// Plaintext xDS; an empty address turns a port off
    #[arg(long = "grpcAddr", value_name = "ADDR", default_value = ":15010")]
    pub grpc_addr: String,
    /// xDS and certificates over TLS
    #[arg(long = "secureGRPCAddr", value_name = "ADDR", default_value = ":15012")]
    pub secure_grpc_addr: String,
    /// Readiness
    #[arg(long = "httpAddr", value_name = "ADDR", default_value = ":8080")]
    pub http_addr: String,
    /// Metrics, version and debug pages
    #[arg(long = "monitoringAddr", value_name = "ADDR", default_value = ":15014")]
    pub monitoring_addr: String,
    /// Webhooks (validation, injection), for an API server that is watched; if empty, injection is served on --httpAddr to loopback
    #[arg(long = "httpsAddr", value_name = "ADDR", default_value = ":15017")]
    pub https_addr: String,
    /// File with the mesh configuration [default: ./etc/istio/config/mesh if there, else the ConfigMap `istio`]
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// Give Services without an EndpointSlice the endpoints that the pods' labels imply
    #[arg(long = "derive-endpoints", value_parser = boolean, default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub derive_endpoints: bool,
    /// Folder of the root certificate and the token signing key [default: $XDG_STATE_HOME/meltemi]
    #[arg(long = "stateDir", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// JSON Web Key Set of tokens that are accepted besides those of `meltemi token`
    #[arg(long = "jwks", value_name = "FILE")]
    pub jwks: Option<PathBuf>,
    /// Certificate of the secure port, with an external CA
    #[arg(long = "tlsCertFile", value_name = "FILE", default_value = "./var/run/secrets/istiod/tls/tls.crt")]
    pub tls_cert: PathBuf,
    /// Key of --tlsCertFile
    #[arg(long = "tlsKeyFile", value_name = "FILE", default_value = "./var/run/secrets/istiod/tls/tls.key")]
    pub tls_key: PathBuf,
    /// Drain time of streams after SIGTERM
    #[arg(long = "shutdownDuration", value_name = "DURATION", default_value = "10s")]
    pub shutdown_duration: String,
    /// Close a proxy's connection after this long, so that replicas balance [default: never]
    #[arg(long = "keepaliveMaxServerConnectionAge", value_name = "DURATION")]
    pub max_connection_age: Option<String>,
    /// Ping an idle connection after this long
    #[arg(long = "keepaliveInterval", value_name = "DURATION")]
    pub keepalive_interval: Option<String>,
    /// Close a connection whose ping is not answered within this time
    #[arg(long = "keepaliveTimeout", value_name = "DURATION")]
    pub keepalive_timeout: Option<String>,
    /// Log level: LEVEL, or SCOPE:LEVEL,.. with none, error, warn, info, debug
    #[arg(long = "log_output_level", value_name = "LEVELS", default_value = "default:info")]
    pub log_output_level: String,
    /// Port on loopback where log levels are changed at run time (`istioctl admin log`); 0 turns it off
    #[arg(long = "ctrlz_port", value_name = "PORT", default_value_t = 9876)]
    pub ctrlz_port: u16,
    /// Log lines as JSON
    #[arg(long = "log_as_json", value_parser = boolean, default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub log_as_json: bool,
}
