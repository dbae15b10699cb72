//! The flags of `token`.

use std::path::PathBuf;

use clap::Subcommand;

use super::EXIT_CODES;

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
