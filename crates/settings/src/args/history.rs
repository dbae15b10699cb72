//! The flags of `history`, `diff` and `blame`.

use super::{Listing, ServerArgs};

#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    /// Only pushes that changed something for this proxy, and what [default: all pushes]
    #[arg(value_name = "POD.NAMESPACE")]
    pub proxy: Option<String>,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// The proxy
    #[arg(value_name = "POD.NAMESPACE")]
    pub proxy: String,
    /// After this push (its number), or at this time: RFC 3339, or a duration before now such as 90m
    #[arg(long, value_name = "PUSH|TIME")]
    pub from: String,
    /// The same [default: now]
    #[arg(long, value_name = "PUSH|TIME")]
    pub to: Option<String>,
    /// Show every resource and every field
    #[arg(long)]
    pub full: bool,
    /// End with code 1 if anything differs
    #[arg(long)]
    pub check: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
}

#[derive(Debug, clap::Args)]
pub struct BlameArgs {
    /// The proxy
    #[arg(value_name = "POD.NAMESPACE")]
    pub proxy: String,
    /// The resource, such as rds/80
    #[arg(value_name = "TYPE/NAME")]
    pub resource: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub output: Listing,
    #[command(flatten)]
    pub target: ServerArgs,
}
