//! The flags of commands that ask a running server: `proxies`, `pushes`, `doctor`, `ca`.

use clap::{Subcommand, ValueEnum};

use super::{EXIT_CODES, Listing};

#[derive(Debug, Subcommand)]
pub(crate) enum AuthorityCommand {
    /// Say which roots are trusted, which of them signs, and how many proxies know of it
    #[command(after_help = EXIT_CODES)]
    Status(AuthorityTarget),
    /// Go on with a change of roots, or begin one; refused while too few proxies know of the last step
    #[command(after_help = EXIT_CODES)]
    Rotate(AuthorityTarget),
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuthorityTarget {
    /// Monitoring address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15014")]
    pub(crate) server: String,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
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
pub(crate) struct Doctor {
    /// Monitoring address of the server
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:15014")]
    pub(crate) server: String,
    /// How long to look at what happens
    #[arg(long = "for", value_name = "DURATION", default_value = "5s")]
    pub(crate) during: String,
    /// A Prometheus that has istio_requests_total: Sidecars are made from who called whom in the last day [default: from the objects]
    #[arg(long, value_name = "URL")]
    pub(crate) prometheus: Option<String>,
    /// What ends with code 1
    #[arg(long, value_enum, default_value = "error")]
    pub(crate) fail_on: FailOn,
    /// Output
    #[arg(short, long, value_enum, default_value = "text")]
    pub(crate) output: Listing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Warning,
    Error,
    Never,
}
