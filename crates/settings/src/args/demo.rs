//! The flags of `demo`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Envoy's program, of version 1.40
    #[arg(long, value_name = "FILE")]
    pub envoy: PathBuf,
    /// Try everything that the demo offers, and leave
    #[arg(long)]
    pub check: bool,
    /// Keep the work folder with its logs
    #[arg(long)]
    pub keep: bool,
}
