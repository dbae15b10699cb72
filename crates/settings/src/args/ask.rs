//! The flags of commands that read a running server: `proxies`, `pushes`, `doctor`, `ca`, `request`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::{EXIT_CODES, Listing, MeshArgs};

#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Show the root certificates, the signing one, and how many workloads have a certificate of the current stage
    #[command(after_help = EXIT_CODES)]
    Status(CaStatusArgs),
    /// Start or advance the rotation of the root certificate; rejected unless all replicas report that workloads have certificates of the last stage
    #[command(after_help = EXIT_CODES)]
    Rotate(CaRotateArgs),
}

/// The server, and the credentials for it.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Monitoring address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15014")]
    pub server: String,
    /// File with a token of a service account, `-` for stdin; to read from elsewhere than loopback, and for everything that changes the server
    #[arg(long, value_name = "FILE")]
    pub token: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct CaStatusArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}

#[derive(Debug, clap::Args)]
pub struct CaRotateArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Advance without the evidence: workloads that do not trust the new root lose their connections
    #[arg(long)]
    pub force: bool,
    /// How many workloads must be known to have a certificate of this stage, at least
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub min_workloads: usize,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}

#[derive(Debug, clap::Args)]
pub struct ProxiesArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}

#[derive(Debug, clap::Args)]
pub struct RequestArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// GET, or POST for what changes the server
    #[arg(value_name = "METHOD", ignore_case = true)]
    pub method: RequestMethod,
    /// The page with its query, such as /metrics or /debug/syncz
    pub path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequestMethod {
    Get,
    Post,
}

#[derive(Debug, clap::Args)]
pub struct PushesArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Follow: a line for each push, and again whenever it progressed
    #[arg(short, long)]
    pub follow: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    /// Short for --output json
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Only what concerns the proxies and objects of this namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Observe the metrics from now for this long [default: the last 15 minutes, as the server keeps them]
    #[arg(long = "for", value_name = "DURATION")]
    pub during: Option<String>,
    /// A Prometheus: Sidecars also import what was called in the last day [default: only what objects name]
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// Judge by the metrics of this time, as Prometheus has them
    #[arg(long, value_name = "DURATION", requires = "prometheus", conflicts_with = "during")]
    pub since: Option<String>,
    /// The findings that end with code 1
    #[arg(long, value_enum, default_value = "error")]
    pub fail_on: FailOn,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}

#[derive(Debug, Subcommand)]
pub enum ScopeCommand {
    /// Print a Sidecar for each namespace that has none, with the measured saving and what would be missed; nothing is applied
    #[command(after_help = EXIT_CODES)]
    Suggest(ScopeSuggestArgs),
}

#[derive(Debug, clap::Args)]
pub struct ScopeSuggestArgs {
    /// Folder of YAML and JSON files, or a file: for the proxies of its Pods [default: ask a server about its proxies]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Only for this namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// A Prometheus with the metrics of the proxies: what was called is imported, too [default: only what objects name]
    #[arg(long, value_name = "URL")]
    pub prometheus: Option<String>,
    /// Calls of this time count
    #[arg(long, value_name = "DURATION", default_value = "24h", requires = "prometheus")]
    pub since: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
    #[command(flatten)]
    pub mesh: MeshArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    Warning,
    Error,
    Never,
}
