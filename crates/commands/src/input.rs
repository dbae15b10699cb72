//! The objects that `check` and `render` read: of a folder, a file, stdin, an API server.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use config::yaml::MAX_BYTES;
use server::settings::MeshSettings;
use server::{FileInput, LoadedObjects, ObjectInput};
use sources::kube::ApiAccess;

use super::client;
use settings::args::InputArgs;

/// Requests per second to an API server. Each kind is one request, or a few.
const RATE: u32 = 100;

pub(super) fn read(args: InputArgs, mesh: &MeshSettings) -> Result<LoadedObjects> {
    let InputArgs { path, kubeconfig, max_file_size } = args;
    ensure!(
        path.is_some() || kubeconfig.is_some(),
        "say what to read: a folder, a file, `-` for stdin, or --kubeconfig FILE"
    );
    let input = ObjectInput {
        files: path.as_deref().map(files).transpose()?,
        cluster: kubeconfig.map(|path| ApiAccess { kubeconfig: Some(path), rate: RATE }),
        max_file_size: max_file_size.map_or(MAX_BYTES as u64, |mib| u64::from(mib) << 20),
    };
    client::run(LoadedObjects::read(input, mesh))
}

fn files(path: &Path) -> Result<FileInput> {
    if path != Path::new("-") {
        return Ok(FileInput::of_path(path));
    }
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).context("cannot read stdin")?;
    Ok(FileInput::Stdin(text))
}
