//! The flags of `explain` and `nacks`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{EXIT_CODES, ExplainRequestArgs, Listing, MeshArgs, ProxyType, ServerArgs};

#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// What a proxy has, from which objects and fields, and why these win
    #[command(after_help = EXIT_CODES)]
    Proxy(ExplainProxyArgs),
    /// What an object became, which proxies it concerns, who acknowledged it, and what of it has no effect
    #[command(after_help = EXIT_CODES)]
    Object(ExplainObjectArgs),
    /// The path of one request, hop by hop, as Envoy will take it, and how it ends
    #[command(after_help = EXIT_CODES)]
    Request(Box<ExplainRequestArgs>),
}

#[derive(Debug, clap::Args)]
pub struct ExplainProxyArgs {
    /// The proxy
    #[arg(value_name = "POD.NAMESPACE")]
    pub proxy: String,
    /// One resource, such as cds/outbound|80||cart.shop.svc.cluster.local; then each of its parts and fields is explained
    #[arg(value_name = "TYPE/NAME")]
    pub resource: Option<String>,
    /// What it had after this push (its number), or at this time: RFC 3339, or a duration before now such as 90m
    #[arg(long, value_name = "PUSH|TIME", conflicts_with = "config")]
    pub at: Option<String>,
    /// With --config: kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub proxy_type: Option<ProxyType>,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub source: ExplainSource,
}

#[derive(Debug, clap::Args)]
pub struct ExplainObjectArgs {
    /// Such as VirtualService; in any case
    #[arg(value_name = "KIND")]
    pub kind: String,
    /// The object; only its name for kinds without a namespace
    #[arg(value_name = "NAMESPACE/NAME")]
    pub name: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub source: ExplainSource,
}

/// Where an explanation comes from: a running server, or objects without one.
#[derive(Debug, clap::Args)]
pub struct ExplainSource {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Read this folder of YAML and JSON files, file, or `-` for stdin instead of asking a server
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub mesh: MeshArgs,
}

#[derive(Debug, clap::Args)]
pub struct NacksArgs {
    #[command(flatten)]
    pub target: ServerArgs,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
}
