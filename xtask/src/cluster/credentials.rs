//! Who is who in a node's cluster: an authority, certificates, tokens and kubeconfigs. They are worth nothing outside of it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::node::Node;

/// Name of the kubeconfig, user and group; the name is the token, too. These are Kubernetes' own names of its parts.
const USERS: [(&str, &str, &str); 5] = [
    ("admin", "admin", "system:masters"),
    ("kubelet", "system:node:node", "system:nodes"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kube-proxy", "system:kube-proxy", ""),
];

pub(super) const ADMIN_TOKEN: &str = "admin-token";

pub(super) fn write(node: Node) -> Result<()> {
    let pki = node.folder()?.join("pki");
    fs::create_dir_all(&pki)?;
    openssl(
        &pki,
        &format!("req -x509 -newkey rsa:2048 -nodes -keyout ca.key -subj /CN={} -days 3650 -out ca.crt", node.name()),
    )?;
    openssl(&pki, "genrsa -out accounts.key 2048")?;
    let service =
        "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local";
    let api = format!("{service},IP:127.0.0.1,IP:{},IP:{}.1", node.address(), node.services());
    certificate(&pki, "apiserver", "/CN=kube-apiserver", &api)?;
    certificate(&pki, "kubelet", "/O=system:nodes/CN=system:node:node", &format!("DNS:node,IP:{}", node.address()))?;
    certificate(&pki, "kubelet-client", "/O=system:masters/CN=kubelet-client", "DNS:kubelet-client")?;
    certificate(&pki, "aggregator", "/CN=aggregator", "DNS:aggregator")?;
    let tokens: String =
        USERS.iter().map(|(name, user, group)| format!("{name}-token,{user},{name},{group}\n")).collect();
    fs::write(pki.join("tokens"), tokens)?;
    USERS.iter().try_for_each(|(name, ..)| kubeconfig(node, name))
}

/// Signed by the node's authority, for servers and clients.
fn certificate(pki: &Path, name: &str, subject: &str, names: &str) -> Result<()> {
    let extensions = format!("extendedKeyUsage=serverAuth,clientAuth\nsubjectAltName={names}\n");
    fs::write(pki.join("extensions"), extensions)?;
    openssl(pki, &format!("req -new -newkey rsa:2048 -nodes -keyout {name}.key -subj {subject} -out request"))?;
    openssl(
        pki,
        &format!(
            "x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out {name}.crt -extfile extensions"
        ),
    )
}

fn openssl(dir: &Path, words: &str) -> Result<()> {
    let out = Command::new("openssl").args(words.split(' ')).current_dir(dir).output().context("run openssl")?;
    ensure!(out.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}

fn kubeconfig(node: Node, name: &str) -> Result<()> {
    let folder = node.folder()?;
    let cluster = json!({ "server": node.api(), "certificate-authority": folder.join("pki/ca.crt") });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": node.name(),
        "clusters": [{ "name": node.name(), "cluster": cluster }],
        "users": [{ "name": name, "user": { "token": format!("{name}-token") } }],
        "contexts": [{ "name": node.name(), "context": { "cluster": node.name(), "user": name } }],
    });
    fs::write(folder.join(format!("{name}.kubeconfig")), config.to_string()).context("write a kubeconfig")
}
