//! The flags of `values`.

use std::path::PathBuf;

use super::Format;

#[derive(Debug, clap::Args)]
pub struct ValuesArgs {
    /// File with an IstioOperator; - for stdin
    #[arg(short, long = "filename", value_name = "FILE")]
    pub filename: PathBuf,
    /// End with code 1 if a field was left out
    #[arg(long)]
    pub strict: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: Format,
}
