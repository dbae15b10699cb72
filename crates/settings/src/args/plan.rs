//! The flags of `meltemi plan` and `meltemi wait`.

use std::path::PathBuf;

use super::{Listing, MeshArgs, ServerArgs};

#[derive(Debug, clap::Args)]
pub struct PlanArgs {
    /// Folder of YAML and JSON files, or a file: the plan is for the proxies of its Pods [default: ask a server about its proxies]
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Objects to apply: a file, a folder, or `-` for stdin
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub filename: PathBuf,
    /// Delete the objects instead
    #[arg(long)]
    pub delete: bool,
    /// End with code 1 if any proxy would change
    #[arg(long)]
    pub check: bool,
    /// Show every resource and every field
    #[arg(long)]
    pub diff: bool,
    /// Let this Envoy validate what each group of proxies would get; a predicted rejection ends with code 1
    #[arg(long, value_name = "FILE")]
    pub envoy: Option<PathBuf>,
    /// Start that Envoy at most this often
    #[arg(long, value_name = "NUMBER", default_value_t = 50, requires = "envoy")]
    pub validations: usize,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
    #[command(flatten)]
    pub mesh: MeshArgs,
}

#[derive(Debug, clap::Args)]
pub struct WaitArgs {
    /// Kind of the object, such as VirtualService
    #[arg(requires = "name", required_unless_present = "filename", conflicts_with = "filename")]
    pub kind: Option<String>,
    /// Namespace and name of the object
    #[arg(value_name = "NAMESPACE/NAME")]
    pub name: Option<String>,
    /// Wait for the content of the Istio objects in this file; `-` for stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub filename: Option<PathBuf>,
    /// Wait for this metadata.generation of the object at least [default: the newest that a replica has]
    #[arg(long, value_name = "NUMBER")]
    pub generation: Option<i64>,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub timeout: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
}
