//! A folder of files, and the program run on it.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_meltemi");

pub(crate) const SHOP: &str = r"
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec:
  clusterIP: 10.96.0.1
  selector: {app: cart}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: cart-1, namespace: shop, labels: {app: cart}}
spec: {nodeName: node-1, containers: [{name: app, image: example/app, ports: [{containerPort: 8080}]}]}
status:
  phase: Running
  podIP: 10.0.0.7
  podIPs: [{ip: 10.0.0.7}]
  conditions: [{type: Ready, status: 'True'}]
";

pub(crate) fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).expect("a file in it");
    }
    dir
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

pub(crate) fn run(words: &[&str]) -> Ran {
    let output = Command::new(PROGRAM).args(words).env_clear().output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub(crate) fn path(dir: &TempDir) -> &str {
    as_text(dir.path())
}

pub(crate) fn as_text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}
