//! The flags of commands that read objects and need no server: `check`, `render`.

use std::path::PathBuf;

use super::{Format, Listing, ProxyType, ServerArgs};

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Count warnings as errors
    #[arg(long)]
    pub strict: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub mesh: MeshArgs,
}

/// Where objects are read from when there is no server.
#[derive(Debug, clap::Args)]
pub struct InputArgs {
    /// Folder of YAML and JSON files, a file, or `-` for stdin
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Read the objects of the API server that this kubeconfig names; those of PATH, if given, replace them
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Read files of up to so many MiB [default: 16, and 128 for a file that is one List]
    #[arg(long = "max-file-size", value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub max_file_size: Option<u32>,
}

/// How the objects of a folder are read when there is no server.
#[derive(Debug, Clone, clap::Args)]
pub struct MeshArgs {
    /// File with the mesh configuration [default: the ConfigMap `istio` of the folder]
    #[arg(long = "meshConfig", value_name = "FILE")]
    pub mesh_config: Option<PathBuf>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// Give Services without an EndpointSlice the endpoints that the pods' labels imply
    #[arg(long = "derive-endpoints")]
    pub derive_endpoints: bool,
}

#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// The proxy of a Pod in the folder
    #[arg(long, value_name = "POD.NAMESPACE", required_unless_present = "node", conflicts_with = "node")]
    pub proxy: Option<String>,
    /// A file with an Envoy node (or a bootstrap that has one), for a proxy that is not a Pod of the folder
    #[arg(long, value_name = "FILE")]
    pub node: Option<PathBuf>,
    /// Kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub proxy_type: Option<ProxyType>,
    /// What a connected proxy of a server had after this push (its number), or at this time: RFC 3339, or a duration before now such as 90m
    #[arg(long, value_name = "PUSH|TIME", requires = "proxy", conflicts_with_all = ["path", "kubeconfig", "node"])]
    pub at: Option<String>,
    #[command(flatten)]
    pub target: ServerArgs,
    /// Only these types: cds, eds, lds, rds, sds, ecds, nds
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub types: Vec<String>,
    /// Output
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: Format,
    #[command(flatten)]
    pub mesh: MeshArgs,
}

#[derive(Debug, clap::Args)]
pub struct ServiceEntriesArgs {
    #[command(flatten)]
    pub input: InputArgs,
    /// Namespaces whose services are written
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', required = true)]
    pub namespaces: Vec<String>,
    /// The namespace of the ServiceEntries, which the shard reads, and whose workloads alone see them
    #[arg(long, value_name = "NAMESPACE")]
    pub into: String,
    #[command(flatten)]
    pub mesh: MeshArgs,
}
