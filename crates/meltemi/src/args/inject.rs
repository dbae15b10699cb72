//! The flags of `meltemi inject`.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Inject {
    /// Folder with the injector's ConfigMap, the mesh config and what else a control plane reads
    pub(crate) dir: PathBuf,
    /// File with workloads to inject; `-` for stdin
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub(crate) filename: PathBuf,
    /// Revision whose ConfigMaps are used [default: $REVISION]
    #[arg(long = "revision", value_name = "NAME")]
    pub(crate) revision: Option<String>,
}
