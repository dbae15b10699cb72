//! Whether an Envoy on a plaintext port would wait for certificates in silence: a plaintext stream gets none, and a listener that needs one
//! never opens. Only a folder shows what the workload needs.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use config::locality::Locality;
use model::{Mesh, MtlsMode, NodeInfo, PortModes, Proxy, ProxyKind};
use serde_json::Value;

use settings::args::{Env, MeshArgs};
use settings::mesh_settings;

/// `None`: nothing is missing. `node`: of the bootstrap.
pub(super) fn warning(config: &Path, args: MeshArgs, node: &Value, env: &Env) -> Result<Option<String>> {
    let text = |key: &str| node[key].as_str().unwrap_or_default().to_owned();
    let info = NodeInfo {
        id: text("id"),
        cluster: text("cluster"),
        metadata: node["metadata"].clone(),
        locality: Locality::default(),
        extensions: Vec::new(),
    };
    let proxy = Proxy::new(&info)?;
    let settings = mesh_settings(args, &env.mesh);
    let snapshot = server::load_folder(config, &settings)?.store.snapshot();
    let mesh = Mesh::new(&snapshot, &Arc::new(settings.environment()));
    let kind = proxy.kind;
    let placement = mesh.place(&Arc::new(proxy));
    let wanted = Some(mode(&placement.modes)).filter(|mode| kind == ProxyKind::Sidecar && *mode != MtlsMode::Disable);
    Ok(wanted.map(|mode| explanation(&placement.proxy.namespace, mode)))
}

/// The strictest mode of any port.
fn mode(modes: &PortModes) -> MtlsMode {
    let all = || modes.ports.values().chain([&modes.rest]);
    let has = |wanted: MtlsMode| all().any(|mode| *mode == wanted);
    match () {
        () if has(MtlsMode::Strict) => MtlsMode::Strict,
        () if has(MtlsMode::Permissive) => MtlsMode::Permissive,
        () => MtlsMode::Disable,
    }
}

fn explanation(namespace: &str, mode: MtlsMode) -> String {
    let mode = match mode {
        MtlsMode::Strict => "STRICT",
        MtlsMode::Permissive => "PERMISSIVE",
        MtlsMode::Disable => "DISABLE",
    };
    format!(
        "the workload accepts mutual TLS (mode {mode} in namespace {namespace}), and a plaintext port gives no certificates: Envoy would wait for \
         them without a word. Start it with `meltemi agent`, name an agent's socket with --sds-socket, use --sds server, or disable mutual TLS in a \
         PeerAuthentication"
    )
}
