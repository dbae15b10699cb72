//! A pod without a kubelet: a network namespace with an address, redirected to a sidecar, with a process for its application.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use serde_json::json;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::netns::NetworkNamespace;
use testkit::parity::CaseProxy;
use testkit::test_ca::TestCa;
use testkit::{environment, sds};

/// Traffic of this group is the sidecar's own and is not redirected.
const SIDECAR_GROUP: &str = "1337";

pub(crate) struct Pod {
    namespace: NetworkNamespace,
    address: &'static str,
    proxy: CaseProxy,
    sds: PathBuf,
    _secrets: sds::SdsStub,
    sidecar: Option<Envoy>,
}

impl Pod {
    pub(crate) fn new(folder: &Path, name: &str, address: &'static str, authority: &TestCa) -> Result<Pod> {
        let namespace = NetworkNamespace::new(name)?;
        let sds = folder.join(format!("{name}-sds"));
        let secrets = sds::SdsStub::start(&sds, authority, &format!("spiffe://cluster.local/ns/shop/sa/{name}"))?;
        let proxy = CaseProxy::new(&json!({
            "name": format!("{name}-1"), "namespace": "shop", "ip": address, "serviceAccount": name,
            "labels": { "app": name, "security.istio.io/tlsMode": "istio" },
        }))?;
        Ok(Pod { namespace, address, proxy, sds, _secrets: secrets, sidecar: None })
    }

    /// As istio-init does: all that comes in goes to 15006, all that the application sends to 15001.
    fn redirect(&self) -> Result<()> {
        for rule in [
            &["PREROUTING", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "15006"][..],
            &["OUTPUT", "-p", "tcp", "-m", "owner", "--gid-owner", SIDECAR_GROUP, "-j", "RETURN"],
            &["OUTPUT", "-p", "tcp", "-d", "127.0.0.1/32", "-j", "RETURN"],
            &["OUTPUT", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "15001"],
        ] {
            self.namespace.run(&[&["iptables", "-w", "-t", "nat", "-A"], rule].concat())?;
        }
        Ok(())
    }

    pub(crate) async fn start_sidecar(&mut self, ads: &Path) -> Result<()> {
        let binary = environment::envoy().context("no Envoy")?;
        let enter = ["ip", "netns", "exec", &self.namespace.name];
        let wrapper = [&enter[..], &["setpriv", "--regid", SIDECAR_GROUP, "--clear-groups"]].concat();
        let ads = ServerAddress::Unix(ads.to_owned());
        let bootstrap = Bootstrap { proxy: &self.proxy, ads, sds: self.sds.clone() };
        let sidecar = self.sidecar.insert(Envoy::start(&binary, &wrapper, &bootstrap)?);
        sidecar.wait_live().await
    }

    /// This test again, in the pod and in a role.
    pub(crate) fn app(&self, role: &str, report: &Path) -> Result<App> {
        let child = Command::new("ip")
            .args(["netns", "exec", &self.namespace.name])
            .arg(std::env::current_exe()?)
            .args(["--exact", "traffic_passes_both_sidecars", "--nocapture"])
            .env(environment::PART, role)
            .env(environment::REPORT, report)
            .stdout(Stdio::null())
            .spawn()?;
        Ok(App(child))
    }

    /// The sum of the sidecar's counters whose names match.
    pub(crate) async fn count(&self, pattern: &str) -> Result<u64> {
        let sidecar = self.sidecar.as_ref().context("the sidecar runs")?;
        Ok(sidecar.stats(pattern).await?.iter().map(|(_, count)| count).sum())
    }

    pub(crate) fn log(&self) -> String {
        self.sidecar.as_ref().map(Envoy::log).unwrap_or_default()
    }
}

/// A process in a pod; killed when dropped.
pub(crate) struct App(pub(crate) Child);

impl Drop for App {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Gives two pods a wire, their addresses and their redirection.
pub(crate) fn connect(a: &Pod, b: &Pod) -> Result<()> {
    let (near, far) = (&a.namespace.name, &b.namespace.name);
    let veth = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", far];
    a.namespace.run(&veth).with_context(|| format!("no wire between {near} and {far}"))?;
    for pod in [a, b] {
        pod.namespace.run(&["ip", "address", "add", &format!("{}/24", pod.address), "dev", "eth0"])?;
        pod.namespace.run(&["ip", "link", "set", "eth0", "up"])?;
        pod.namespace.run(&["ip", "route", "add", "default", "dev", "eth0"])?;
        pod.redirect()?;
    }
    Ok(())
}
