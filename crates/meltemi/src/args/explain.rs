//! The flags of `explain` and `nacks`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{EXIT_CODES, ExplainRequest, Listing, MeshArgs, ProxyType, Target};

#[derive(Debug, Subcommand)]
pub(crate) enum Explain {
    /// What a proxy has, from which objects and fields, and why these win
    #[command(after_help = EXIT_CODES)]
    Proxy(ExplainProxy),
    /// What an object became, which proxies it concerns, who acknowledged it, and what of it has no effect
    #[command(after_help = EXIT_CODES)]
    Object(ExplainObject),
    /// The way of one request, hop by hop, as Envoy will take it, and how it ends
    #[command(after_help = EXIT_CODES)]
    Request(Box<ExplainRequest>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainProxy {
    /// The proxy
    #[arg(value_name = "POD.NAMESPACE")]
    pub(crate) proxy: String,
    /// One resource, such as cds/outbound|80||cart.shop.svc.cluster.local; then each of its parts and fields is explained
    #[arg(value_name = "TYPE/NAME")]
    pub(crate) resource: Option<String>,
    /// With --config: kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub(crate) proxy_type: Option<ProxyType>,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
    #[command(flatten)]
    pub(crate) source: ExplainSource,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainObject {
    /// Such as VirtualService; in any case
    #[arg(value_name = "KIND")]
    pub(crate) kind: String,
    /// The object; only its name for kinds without a namespace
    #[arg(value_name = "NAMESPACE/NAME")]
    pub(crate) name: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
    #[command(flatten)]
    pub(crate) source: ExplainSource,
}

/// Where an explanation comes from: a running server, or objects without one.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainSource {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Read this folder of YAML and JSON files, file, or `-` for stdin instead of asking a server
    #[arg(long, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) mesh: MeshArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Nacks {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
}
