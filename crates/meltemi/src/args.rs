//! Command line and environment, as written by the user; the only reader of the environment. What they mean is settings.rs.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, CommandFactory, Parser, Subcommand, ValueEnum};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  ran, and found something wrong (`check`: an error, or with --strict a warning)
  2  could not run: wrong arguments, unreadable folder, port in use, server not reached

Data goes to stdout, everything else to stderr.";

const EXAMPLES: &str = "\
Examples:
  meltemi serve --config ./mesh            serve a folder of YAML, follow its changes
  meltemi check ./mesh                     what is wrong with these objects?
  meltemi render ./mesh --proxy cart-1.shop --type cds,eds
                                           what would this proxy get?
  meltemi proxies                          who is connected, and who is behind?
  meltemi pushes --follow                  what is sent, why, and how far did it get?";

/// A control plane for Istio meshes.
#[derive(Debug, Parser)]
#[command(name = "meltemi", version, before_help = EXAMPLES, after_help = EXIT_CODES, args_override_self = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve configuration to proxies (also as `discovery`, with istiod's flags; unknown flags only warn)
    #[command(visible_alias = "discovery", after_help = EXIT_CODES, args_override_self = true)]
    Serve(Box<Serve>),
    /// Say what is wrong with the objects of a folder
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Print what a proxy would get, without a server
    #[command(after_help = EXIT_CODES)]
    Render(Render),
    /// Print a bootstrap that connects an Envoy to a server
    #[command(after_help = EXIT_CODES)]
    Bootstrap(Box<Bootstrap>),
    /// Accompany an Envoy: get and renew its certificate, start it, drain it
    #[command(after_help = EXIT_CODES)]
    Agent(Box<Agent>),
    /// List the connected proxies and how far each has come
    #[command(after_help = EXIT_CODES)]
    Proxies(Proxies),
    /// List the last pushes: why each was made, whom it reached, how far it got
    #[command(after_help = EXIT_CODES)]
    Pushes(Pushes),
    /// Tokens of service accounts, for proxies without a Kubernetes API server
    #[command(subcommand)]
    Token(Token),
    /// Print the version
    Version(Version),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Serve {
    /// Folder of YAML and JSON files to serve, watched for changes
    #[arg(long = "config", alias = "configDir", value_name = "DIR")]
    pub(crate) config: Option<PathBuf>,
    /// Plaintext xDS; an empty address turns a port off
    #[arg(long = "grpcAddr", value_name = "ADDR", default_value = ":15010")]
    pub(crate) grpc_addr: String,
    /// xDS and certificates over TLS
    #[arg(long = "secureGRPCAddr", value_name = "ADDR", default_value = ":15012")]
    pub(crate) secure_grpc_addr: String,
    /// Readiness
    #[arg(long = "httpAddr", value_name = "ADDR", default_value = ":8080")]
    pub(crate) http_addr: String,
    /// Metrics, version and debug pages
    #[arg(long = "monitoringAddr", value_name = "ADDR", default_value = ":15014")]
    pub(crate) monitoring_addr: String,
    /// Webhooks (not built yet: always off)
    #[arg(long = "httpsAddr", value_name = "ADDR", default_value = ":15017")]
    pub(crate) https_addr: String,
    /// File with the mesh configuration [default: ./etc/istio/config/mesh if there, else the ConfigMap `istio`]
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub(crate) mesh_config: Option<PathBuf>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub(crate) domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub(crate) cluster_id: Option<String>,
    /// Give Services without an EndpointSlice the endpoints that the pods' labels imply
    #[arg(long = "derive-endpoints", value_parser = truth, default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) derive_endpoints: bool,
    /// Where the root of the mesh and the key of tokens are kept [default: $XDG_STATE_HOME/meltemi]
    #[arg(long = "stateDir", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// JSON Web Key Set of tokens that are believed besides those of `meltemi token`
    #[arg(long = "jwks", value_name = "FILE")]
    pub(crate) jwks: Option<PathBuf>,
    /// How long streams may take to leave after SIGTERM
    #[arg(long = "shutdownDuration", value_name = "DURATION", default_value = "10s")]
    pub(crate) shutdown_duration: String,
    /// Close a proxy's connection after this long, so that replicas balance [default: never]
    #[arg(long = "keepaliveMaxServerConnectionAge", value_name = "DURATION")]
    pub(crate) max_connection_age: Option<String>,
    /// Ping a silent connection after this long
    #[arg(long = "keepaliveInterval", value_name = "DURATION")]
    pub(crate) keepalive_interval: Option<String>,
    /// Close a connection whose ping stays unanswered for this long
    #[arg(long = "keepaliveTimeout", value_name = "DURATION")]
    pub(crate) keepalive_timeout: Option<String>,
    /// Log level: LEVEL, or SCOPE:LEVEL,.. with none, error, warn, info, debug
    #[arg(long = "log_output_level", value_name = "LEVELS", default_value = "default:info")]
    pub(crate) log_output_level: String,
    /// Log lines as JSON
    #[arg(long = "log_as_json", value_parser = truth, default_value = "false",
          num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    pub(crate) log_as_json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Listing {
    Text,
    Json,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Folder of YAML and JSON files
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Count warnings as errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
    #[command(flatten)]
    pub(crate) mesh: MeshArgs,
}

/// How the objects of a folder are read when there is no server.
#[derive(Debug, clap::Args)]
pub(crate) struct MeshArgs {
    /// File with the mesh configuration [default: the ConfigMap `istio` of the folder]
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub(crate) mesh_config: Option<PathBuf>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub(crate) domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub(crate) cluster_id: Option<String>,
    /// Give Services without an EndpointSlice the endpoints that the pods' labels imply
    #[arg(long = "derive-endpoints")]
    pub(crate) derive_endpoints: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Render {
    /// Folder of YAML and JSON files
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The proxy of a Pod in the folder
    #[arg(long, value_name = "POD.NAMESPACE", required_unless_present = "node", conflicts_with = "node")]
    pub(crate) proxy: Option<String>,
    /// A file with an Envoy node (or a bootstrap that has one), for a proxy that is not a Pod of the folder
    #[arg(long, value_name = "FILE")]
    pub(crate) node: Option<PathBuf>,
    /// Kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub(crate) proxy_type: Option<ProxyType>,
    /// Only these types: cds, eds, lds, rds, sds, ecds, nds
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) types: Vec<String>,
    /// Output
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
    #[command(flatten)]
    pub(crate) mesh: MeshArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProxyType {
    Sidecar,
    Router,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bootstrap {
    /// Name of the proxy; with --config it must be a Pod of the folder
    #[arg(long, value_name = "POD.NAMESPACE")]
    pub(crate) proxy: String,
    /// Address of the server's xDS port, HOST:PORT
    #[arg(long, value_name = "ADDR")]
    pub(crate) server: String,
    /// Folder with the Pod (its address, labels, account and node)
    #[arg(long, value_name = "DIR")]
    pub(crate) config: Option<PathBuf>,
    /// Kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub(crate) proxy_type: Option<ProxyType>,
    /// Address of the proxy [default: that of the Pod]
    #[arg(long, value_name = "IP")]
    pub(crate) ip: Option<std::net::IpAddr>,
    /// A label of the workload; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) labels: Vec<(String, String)>,
    /// Service account of the workload
    #[arg(long, value_name = "NAME")]
    pub(crate) service_account: Option<String>,
    /// Where the proxy runs
    #[arg(long, value_name = "REGION/ZONE/SUBZONE")]
    pub(crate) locality: Option<String>,
    /// A key of the node's metadata (JSON, or else a string); may be repeated
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub(crate) domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub(crate) cluster_id: Option<String>,
    /// Unix socket where an agent serves certificates, such as ./var/run/secrets/workload-spiffe-uds/socket
    /// [default: ask the server]
    #[arg(long, value_name = "PATH")]
    pub(crate) sds_socket: Option<String>,
    /// The server's port is the one with TLS; the certificate comes from --sds-socket
    #[arg(long, requires = "sds_socket")]
    pub(crate) secure: bool,
    /// The name that the server's certificate must have [default: the host of --server]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
    /// Envoy's admin address; empty for none
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15000")]
    pub(crate) admin: String,
    /// State of the world instead of delta
    #[arg(long)]
    pub(crate) sotw: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub(crate) output: Format,
}

/// The flags of `bootstrap`, and what the agent needs besides.
#[derive(Debug, clap::Args)]
pub(crate) struct Agent {
    #[command(flatten)]
    pub(crate) bootstrap: Bootstrap,
    /// File with the roots of the mesh
    #[arg(long, value_name = "FILE", default_value = "./var/run/secrets/istio/root-cert.pem")]
    pub(crate) root: PathBuf,
    /// File with the token of the workload; `meltemi token create` makes one
    #[arg(long, value_name = "FILE", default_value = "./var/run/secrets/tokens/istio-token")]
    pub(crate) token: PathBuf,
    /// Where certificates come from [default: --server]
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) ca: Option<String>,
    /// The trust domain that the signing request names
    #[arg(long, default_value = "cluster.local")]
    pub(crate) trust_domain: String,
    /// How long a certificate should last
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(crate) lifetime: String,
    /// Kind of the workload's key: P-256, P-384, RSA-2048, RSA-4096 [default: $ECC_SIGNATURE_ALGORITHM, else RSA-2048]
    #[arg(long, value_name = "KIND")]
    pub(crate) key: Option<String>,
    /// Folder for the socket and Envoy's bootstrap
    #[arg(long, value_name = "DIR", default_value = "./etc/istio/proxy")]
    pub(crate) workdir: PathBuf,
    /// The Envoy to start
    #[arg(long, value_name = "FILE", default_value = "envoy")]
    pub(crate) envoy: PathBuf,
    /// How long connections may take to end after SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub(crate) drain: String,
    /// More arguments for Envoy
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) envoy_args: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Proxies {
    /// Monitoring address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15014")]
    pub(crate) server: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Print a token
    #[command(after_help = EXIT_CODES)]
    Create(TokenCreate),
}

#[derive(Debug, clap::Args)]
pub(crate) struct TokenCreate {
    /// Whose token
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) service_account: String,
    /// For whom
    #[arg(long, default_value = "istio-ca")]
    pub(crate) audience: String,
    /// For how long
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub(crate) lifetime: String,
    /// The state folder of the server that shall believe it [default: $XDG_STATE_HOME/meltemi]
    #[arg(long = "stateDir", value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pushes {
    /// Monitoring address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15014")]
    pub(crate) server: String,
    /// Go on: a line for each push, and again whenever it got on
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
    /// The same as --output json
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Version {
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
}

/// The environment variables that mean something, as written. `None`: not set, or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Env {
    pub(crate) cluster_id: Option<String>,
    pub(crate) pod_namespace: Option<String>,
    pub(crate) debounce_after: Option<String>,
    pub(crate) debounce_max: Option<String>,
    pub(crate) eds_debounce: Option<String>,
    pub(crate) endpoint_window: Option<String>,
    pub(crate) push_throttle: Option<String>,
    pub(crate) max_requests_per_second: Option<String>,
    pub(crate) max_streams_per_address: Option<String>,
    pub(crate) max_streams_per_identity: Option<String>,
    pub(crate) subscription_changes_per_second: Option<String>,
    pub(crate) removal_patience: Option<String>,
    pub(crate) keepalive_interval: Option<String>,
    pub(crate) keepalive_timeout: Option<String>,
    pub(crate) max_streams: Option<String>,
    pub(crate) max_receive_size: Option<String>,
    pub(crate) metrics_localhost_only: Option<String>,
    pub(crate) trace_sampling: Option<String>,
    /// All of it: headers to extension providers may be taken from any.
    pub(crate) variables: model::Variables,
    pub(crate) identity: IdentityEnv,
}

/// Those that mean something to identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdentityEnv {
    pub(crate) home: Option<String>,
    pub(crate) state_home: Option<String>,
    pub(crate) root_ca_dir: Option<String>,
    pub(crate) key_type: Option<String>,
    pub(crate) rsa_key_size: Option<String>,
    pub(crate) root_ttl: Option<String>,
    pub(crate) root_grace: Option<String>,
    pub(crate) default_ttl: Option<String>,
    pub(crate) max_ttl: Option<String>,
    pub(crate) workload_ttl: Option<String>,
    pub(crate) token_audiences: Option<String>,
    pub(crate) trusted_gateways: Option<String>,
    pub(crate) custom_host: Option<String>,
    pub(crate) xds_auth: Option<String>,
    pub(crate) identity_check: Option<String>,
    pub(crate) ecc_algorithm: Option<String>,
}

impl Env {
    #[allow(clippy::disallowed_methods, reason = "this is the one place that reads the environment")]
    pub(crate) fn read() -> Env {
        let text = |word: OsString| word.into_string().ok();
        let all = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Env { variables: model::Variables::new(all), ..Env::from_lookup(|name| std::env::var(name).ok()) }
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Env {
        let set = |name: &str| lookup(name).filter(|value| !value.is_empty());
        Env {
            cluster_id: set("CLUSTER_ID"),
            pod_namespace: set("POD_NAMESPACE"),
            debounce_after: set("PILOT_DEBOUNCE_AFTER"),
            debounce_max: set("PILOT_DEBOUNCE_MAX"),
            eds_debounce: set("PILOT_ENABLE_EDS_DEBOUNCE"),
            endpoint_window: set("MELTEMI_ENDPOINT_WINDOW"),
            push_throttle: set("PILOT_PUSH_THROTTLE"),
            max_requests_per_second: set("PILOT_MAX_REQUESTS_PER_SECOND"),
            max_streams_per_address: set("MELTEMI_MAX_STREAMS_PER_ADDRESS"),
            max_streams_per_identity: set("MELTEMI_MAX_STREAMS_PER_IDENTITY"),
            subscription_changes_per_second: set("MELTEMI_SUBSCRIPTION_CHANGES_PER_SECOND"),
            removal_patience: set("MELTEMI_REMOVAL_PATIENCE"),
            keepalive_interval: set("GRPC_KEEPALIVE_INTERVAL"),
            keepalive_timeout: set("GRPC_KEEPALIVE_TIMEOUT"),
            // istiod's own spelling of gRPC.
            max_streams: set("ISTIO_GPRC_MAXSTREAMS"),
            max_receive_size: set("ISTIO_GPRC_MAXRECVMSGSIZE"),
            metrics_localhost_only: set("METRICS_LOCALHOST_ACCESS_ONLY"),
            trace_sampling: set("PILOT_TRACE_SAMPLING"),
            variables: model::Variables::default(),
            identity: IdentityEnv {
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
            },
        }
    }
}

/// The arguments, and the flags of `serve` that are not ours and were left out.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<(Args, Vec<String>), clap::Error> {
    let (known, ignored) = without_unknown_flags(words.into_iter().collect());
    Args::try_parse_from(known).map(|args| (args, ignored))
}

/// istiod tolerates unknown flags so that a chart newer or older than the image does not stop the pod; so do we, for its command.
/// The command has no positional arguments: a bare word after an unknown flag can only be that flag's value.
fn without_unknown_flags(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut root = Args::command();
    root.build();
    let Some(serve) = words.get(1).and_then(|word| root.find_subcommand(word)).filter(|it| it.get_name() == "serve")
    else {
        return (words, Vec::new());
    };
    let mut kept = Vec::new();
    let mut ignored = Vec::new();
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let is_flag = text.len() > 1 && text.starts_with('-') && text != "--";
        if !is_flag || kept.len() < 2 || is_known(serve, &text) {
            kept.push(word);
            continue;
        }
        ignored.push(text.split('=').next().unwrap_or_default().to_owned());
        if !text.contains('=') {
            words.next_if(|next| !next.to_string_lossy().starts_with('-'));
        }
    }
    (kept, ignored)
}

fn is_known(command: &clap::Command, flag: &str) -> bool {
    let name = flag.split('=').next().unwrap_or_default();
    if let Some(long) = name.strip_prefix("--") {
        return command.get_arguments().any(|arg| {
            arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
        });
    }
    let short = name.chars().nth(1);
    command.get_arguments().any(|arg| short.is_some() && arg.get_short() == short)
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

/// A boolean in any of the spellings that istiod's flags and variables take.
pub(crate) fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(words: &[&str]) -> (Serve, Vec<String>) {
        let words = ["meltemi"].iter().chain(words).map(OsString::from);
        let (args, ignored) = parse(words).unwrap();
        let Command::Serve(serve) = args.command else { panic!("not serve") };
        (*serve, ignored)
    }

    #[test]
    fn both_names_of_the_command_and_of_the_folder() {
        for command in ["serve", "discovery"] {
            for folder in [&["--config", "d"][..], &["--configDir", "d"], &["--config=d"], &["--configDir=d"]] {
                let (serve, ignored) = serve(&[&[command], folder].concat());
                assert_eq!(serve.config.as_deref(), Some(std::path::Path::new("d")));
                assert!(ignored.is_empty());
            }
        }
    }

    #[test]
    fn unknown_flags_are_left_out_with_their_values() {
        let (serve, ignored) = serve(&[
            "discovery",
            "--kubeconfig",
            "/x",
            "--grpcAddr",
            ":1",
            "--profile",
            "--cniNamespace=istio-system",
            "-z",
            "9",
            "--config",
            "d",
        ]);
        assert_eq!(ignored, ["--kubeconfig", "--profile", "--cniNamespace", "-z"]);
        assert_eq!(serve.grpc_addr, ":1");
        assert_eq!(serve.config.as_deref(), Some(std::path::Path::new("d")));
    }

    #[test]
    fn empty_address_in_both_spellings() {
        let (serve, _) = serve(&["serve", "--grpcAddr=", "--httpAddr", ""]);
        assert_eq!((serve.grpc_addr.as_str(), serve.http_addr.as_str()), ("", ""));
        assert_eq!(serve.monitoring_addr, ":15014");
    }

    #[test]
    fn booleans_as_istiod_writes_them() {
        assert!(serve(&["serve", "--log_as_json"]).0.log_as_json);
        assert!(serve(&["serve", "--log_as_json=T"]).0.log_as_json);
        assert!(!serve(&["serve", "--log_as_json=false"]).0.log_as_json);
    }

    #[test]
    fn the_last_of_a_repeated_flag_counts() {
        assert_eq!(serve(&["serve", "--domain=a", "--domain", "b"]).0.domain, "b");
    }

    #[test]
    fn other_commands_refuse_unknown_flags() {
        let words = ["meltemi", "check", ".", "--nope"].map(OsString::from);
        assert_eq!(parse(words).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn help_of_serve_is_not_an_unknown_flag() {
        let words = ["meltemi", "serve", "--help"].map(OsString::from);
        assert_eq!(parse(words).unwrap_err().kind(), clap::error::ErrorKind::DisplayHelp);
    }

    #[test]
    fn empty_variables_are_not_set() {
        let env = Env::from_lookup(|name| match name {
            "CLUSTER_ID" => Some(String::new()),
            "PILOT_DEBOUNCE_AFTER" => Some("5ms".into()),
            _ => None,
        });
        assert_eq!(env, Env { debounce_after: Some("5ms".into()), ..Env::default() });
    }

    #[test]
    fn the_command_definitions_are_consistent() {
        Args::command().debug_assert();
    }
}
