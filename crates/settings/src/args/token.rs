//! The flags of `token`.

use std::path::PathBuf;

use clap::Subcommand;

use super::EXIT_CODES;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Print a token
    #[command(after_help = EXIT_CODES)]
    Create(TokenCreateArgs),
}

#[derive(Debug, clap::Args)]
pub struct TokenCreateArgs {
    /// Service account of the token
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub service_account: String,
    /// Audience of the token
    #[arg(long, default_value = "istio-ca")]
    pub audience: String,
    /// Lifetime of the token
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub lifetime: String,
    /// State folder of the server that accepts it [default: $XDG_STATE_HOME/meltemi]
    #[arg(long = "stateDir", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
}
