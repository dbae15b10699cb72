//! etcd and kube-apiserver for istiod, with Istio's kinds. No controllers and no nodes run in it: objects are what was written.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::api::Api;
use super::plane::until;
use crate::reference::Reference;
use shop::port;
use shop::process::ChildProcess;

const TOKEN: &str = "bench-admin";

pub(super) struct Cluster {
    pub(super) kubeconfig: PathBuf,
    address: SocketAddr,
    // The API server goes before its store.
    api: ChildProcess,
    store: ChildProcess,
}

impl Cluster {
    pub(super) fn start(reference: &Reference, work: &Path) -> Result<Cluster> {
        let dir = work.join("cluster");
        fs::create_dir_all(&dir)?;
        let (client, peer, address) = (port::reserve()?, port::reserve()?, port::reserve()?);
        let store = store(reference, &dir, client, peer)?;
        let mut api = api_server(reference, &dir, client, address)?;
        let cluster_api = Api { url: format!("https://{address}"), token: TOKEN.to_owned() };
        until("kube-apiserver to be ready", &mut api, || cluster_api.is_ready())?;
        let kinds = fs::read_to_string(reference.kinds()?).context("read Istio's CustomResourceDefinitions")?;
        cluster_api.create_yaml("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &kinds)?;
        until("Istio's kinds", &mut api, || cluster_api.hide_own_service().is_ok())?;
        let kubeconfig = dir.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(address))?;
        Ok(Cluster { kubeconfig, address, api, store })
    }

    /// Its programs work for the measurement, and are no part of what is measured.
    pub(super) fn processes(&self) -> [u32; 2] {
        [self.api.id(), self.store.id()]
    }

    pub(super) fn api(&self) -> Api {
        Api { url: format!("https://{}", self.address), token: TOKEN.to_owned() }
    }
}

fn store(reference: &Reference, dir: &Path, client: SocketAddr, peer: SocketAddr) -> Result<ChildProcess> {
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let mut command = Command::new(reference.program("etcd"));
    command.arg("--data-dir").arg(dir.join("etcd")).arg("--unsafe-no-fsync");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    ChildProcess::start("etcd", dir, &mut command)
}

fn api_server(reference: &Reference, dir: &Path, store: SocketAddr, address: SocketAddr) -> Result<ChildProcess> {
    let key = dir.join("accounts.key");
    let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output();
    ensure!(made.context("openssl is needed to make a key")?.status.success(), "openssl genrsa failed");
    fs::write(dir.join("tokens"), format!("{TOKEN},admin,admin,system:masters\n"))?;
    let mut command = Command::new(reference.program("kube-apiserver"));
    let path = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
    command.arg(format!("--etcd-servers=http://{store}")).arg(path("cert-dir", dir.join("certificates")));
    command.arg(format!("--secure-port={}", address.port()));
    command.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--authorization-mode=RBAC"]);
    command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
    command.args(["--api-audiences=istio-ca,https://kubernetes.default.svc"]);
    command.arg(path("service-account-key-file", key.clone())).arg(path("service-account-signing-key-file", key));
    command.arg(path("token-auth-file", dir.join("tokens")));
    command.args(["--service-cluster-ip-range=10.96.0.0/16", "--disable-admission-plugins=ServiceAccount"]);
    ChildProcess::start("kube-apiserver", dir, &mut command)
}

fn kubeconfig_text(address: SocketAddr) -> String {
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{ "name": "bench", "cluster": { "server": format!("https://{address}"), "insecure-skip-tls-verify": true } }],
        "users": [{ "name": "bench", "user": { "token": TOKEN } }],
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
    });
    config.to_string()
}
