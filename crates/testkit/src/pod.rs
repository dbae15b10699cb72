//! Pods without a kubelet: network namespaces on one bridge, each with an address, a redirected sidecar and room for an application.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpStream, UnixListener};

use crate::envoy::{Bootstrap, Envoy, ServerAddress};
use crate::netns::{NamespaceRuntime, NetworkNamespace};
use crate::parity::CaseProxy;
use crate::test_ca::TestCa;
use crate::{environment, sds};

/// Traffic of this group is the sidecar's own and is not redirected.
pub const SIDECAR_GROUP: &str = "1337";

/// Where the sockets of a mesh's helpers are, and who certifies its workloads.
pub struct PodEnvironment {
    pub folder: PathBuf,
    pub authority: TestCa,
    /// A socket that leads to the control plane.
    pub ads: PathBuf,
}

/// The wires between pods. It has an address of its own: a host outside the mesh.
pub struct PodNetwork {
    namespace: NetworkNamespace,
}

impl PodNetwork {
    pub fn new(address: Ipv4Addr) -> Result<PodNetwork> {
        let namespace = NetworkNamespace::new("switch")?;
        namespace.run(&["ip", "link", "add", "br0", "type", "bridge"])?;
        namespace.run(&["ip", "address", "add", &format!("{address}/24"), "dev", "br0"])?;
        namespace.run(&["ip", "link", "set", "br0", "up"])?;
        Ok(PodNetwork { namespace })
    }

    pub fn worker(&self) -> Result<NamespaceRuntime> {
        self.namespace.worker()
    }

    /// A program that will run where the switch is.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
        self.namespace.command(program)
    }

    /// A namespace with this address, connected to all others.
    pub fn place(&self, name: &str, address: Ipv4Addr) -> Result<NetworkNamespace> {
        let namespace = NetworkNamespace::new(name)?;
        self.connect(&namespace, address)?;
        Ok(namespace)
    }

    fn connect(&self, pod: &NetworkNamespace, address: Ipv4Addr) -> Result<()> {
        let port = format!("p{}", address.octets()[3]);
        self.namespace
            .run(&["ip", "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &pod.name])?;
        self.namespace.run(&["ip", "link", "set", &port, "master", "br0", "up"])?;
        pod.run(&["ip", "address", "add", &format!("{address}/24"), "dev", "eth0"])?;
        pod.run(&["ip", "link", "set", "eth0", "up"])?;
        pod.run(&["ip", "route", "add", "default", "dev", "eth0"])
    }
}

pub struct TestPod {
    // Before the namespace, so that nothing runs in it any more when it goes.
    sidecar: Option<Envoy>,
    pub worker: NamespaceRuntime,
    namespace: NetworkNamespace,
    proxy: CaseProxy,
    sds: PathBuf,
    _secrets: sds::SdsStub,
}

impl TestPod {
    /// `entry` is as in a case's proxies.yaml, with a service account. Must be called within a tokio runtime.
    pub fn new(switch: &PodNetwork, near: &PodEnvironment, entry: &Value) -> Result<TestPod> {
        let text = |key: &str| entry[key].as_str().with_context(|| format!("a pod needs {key}: {entry}"));
        let (name, account, space) = (text("name")?, text("serviceAccount")?, text("namespace")?);
        let namespace = switch.place(name, text("ip")?.parse()?)?;
        // A gateway has no application whose traffic would be redirected.
        if entry["type"] != "router" {
            redirect(&namespace)?;
        }
        let sds = near.folder.join(format!("{name}-sds"));
        let secrets =
            sds::SdsStub::start(&sds, &near.authority, &format!("spiffe://cluster.local/ns/{space}/sa/{account}"))?;
        let worker = namespace.worker()?;
        Ok(TestPod { sidecar: None, worker, namespace, proxy: CaseProxy::new(entry)?, sds, _secrets: secrets })
    }

    /// Returns when it is live.
    pub async fn start_sidecar(&mut self, ads: &Path) -> Result<()> {
        let binary = environment::envoy().context("no Envoy")?;
        let enter = ["ip", "netns", "exec", &self.namespace.name];
        let wrapper = [&enter[..], &["setpriv", "--regid", SIDECAR_GROUP, "--clear-groups"]].concat();
        let bootstrap =
            Bootstrap { proxy: &self.proxy, ads: ServerAddress::Unix(ads.to_owned()), sds: self.sds.clone() };
        let sidecar = self.sidecar.insert(Envoy::start(&binary, &wrapper, &bootstrap)?);
        sidecar.wait_live().await
    }

    /// As a crash would.
    pub fn stop_sidecar(&mut self) {
        self.sidecar = None;
    }

    /// The sum of the sidecar's counters whose names match.
    pub async fn count(&self, pattern: &str) -> Result<u64> {
        let sidecar = self.sidecar.as_ref().context("the sidecar runs")?;
        Ok(sidecar.stats(pattern).await?.iter().map(|(_, count)| count).sum())
    }

    pub fn log(&self) -> String {
        self.sidecar.as_ref().map(Envoy::log).unwrap_or_default()
    }
}

/// As istio-init does: all that comes in goes to 15006, all that the application sends to 15001.
pub fn redirect(namespace: &NetworkNamespace) -> Result<()> {
    for rule in [
        &["PREROUTING", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "15006"][..],
        &["OUTPUT", "-p", "tcp", "-m", "owner", "--gid-owner", SIDECAR_GROUP, "-j", "RETURN"],
        &["OUTPUT", "-p", "tcp", "-d", "127.0.0.1/32", "-j", "RETURN"],
        &["OUTPUT", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "15001"],
    ] {
        namespace.run(&[&["iptables", "-w", "-t", "nat", "-A"], rule].concat())?;
    }
    Ok(())
}

/// A pod as an object: running, ready, with what the control plane reads of it.
pub fn object(entry: &Value, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": entry["name"], "namespace": entry["namespace"], "labels": entry["labels"] },
        "spec": { "nodeName": node, "serviceAccountName": entry["serviceAccount"], "containers": [{ "name": "app" }] },
        "status": {
            "phase": "Running", "podIP": entry["ip"], "podIPs": [{ "ip": entry["ip"] }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

/// A Unix socket that leads to the control plane, which is outside the namespaces. Must be called within a tokio runtime.
pub fn forward(socket: &Path, control_plane: SocketAddr) -> Result<()> {
    let listener = UnixListener::bind(socket)?;
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(control_plane).await?;
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    Ok(())
}
