//! The shop on this machine: which pods there are and what they call. The objects that say the same to the control plane are in
//! examples/shop.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context, Result};

use crate::app::{App, Next};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pod {
    pub(crate) app: &'static str,
    pub(crate) version: &'static str,
    address: Ipv4Addr,
    /// Host that the app calls, and its port on the proxy. `None`: it calls nobody.
    next: Option<(&'static str, u16)>,
}

pub(crate) const FRONT: Pod = pod("front", "v1", 1, Some(("cart", 7081)));
pub(crate) const CART_V1: Pod = pod("cart", "v1", 2, Some(("stock", 7082)));
pub(crate) const STOCK: Pod = pod("stock", "v1", 3, Some(("supplier.example.com", 7083)));
/// Runs from the start, but nobody knows of it until its file is copied into the folder.
pub(crate) const CART_V2: Pod = pod("cart", "v2", 4, Some(("stock", 7082)));

pub(crate) const PODS: [Pod; 4] = [FRONT, CART_V1, STOCK, CART_V2];

/// An app without a proxy: the mesh knows it by a ServiceEntry.
pub(crate) const SUPPLIER: Pod = pod("supplier", "outside", 9, None);

/// Where the proxy takes requests for the app.
const INGRESS: u16 = 7080;
const APP: u16 = 7090;
const ADMIN: u16 = 7099;

const fn pod(app: &'static str, version: &'static str, last: u8, next: Option<(&'static str, u16)>) -> Pod {
    Pod { app, version, address: Ipv4Addr::new(127, 0, 10, last), next }
}

impl Pod {
    /// As the control plane names its proxy.
    pub(crate) fn proxy(&self) -> String {
        format!("{}-{}.shop", self.app, self.version)
    }

    pub(crate) fn ingress(&self) -> SocketAddr {
        self.at(INGRESS)
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.at(ADMIN)
    }

    pub(crate) fn app_address(&self) -> SocketAddr {
        self.at(APP)
    }

    /// Every address that the app and its proxy will listen on.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        [INGRESS, APP, ADMIN].into_iter().chain(self.next.map(|(_, port)| port)).map(|port| self.at(port))
    }

    /// Starts the app on a thread of its own, for as long as the process lives.
    pub(crate) fn start_app(self) -> Result<()> {
        let listener = listener(self.app_address())?;
        let next = self.next.map(|(host, port)| Next { host: host.to_owned(), to: self.at(port).to_string() });
        let app = App { name: self.app.to_owned(), version: self.version.to_owned(), next };
        thread::spawn(move || app.serve(&listener));
        Ok(())
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.address), port)
    }
}

/// Binds, or says who is in the way.
pub(crate) fn listener(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).with_context(|| {
        format!(
            "the demo needs {at}; if another program listens there (or a demo is running), stop it; if this system has no \
             address {} on its loopback (macOS), add it: ifconfig lo0 alias {}",
            at.ip(),
            at.ip()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn the_example_has_this_supplier() {
        let file = repository().join("examples/shop/supplier.yaml");
        let entry = std::fs::read_to_string(file).expect("the example has it");
        let (host, port) = STOCK.next.expect("stock calls it");
        let app = format!("ports: {{http: {APP}}}");
        for part in
            [format!("hosts: [{host}]"), format!("number: {port},"), format!("address: {}\n", SUPPLIER.address), app]
        {
            assert!(entry.contains(&part), "supplier.yaml lacks {part:?}");
        }
    }

    /// Two places say the same; this test is what keeps them together.
    #[test]
    fn the_example_has_these_pods_and_ports() {
        let read = |file: &str| std::fs::read_to_string(repository().join("examples").join(file)).expect(file);
        let sidecars = read("shop/sidecars.yaml");
        for pod in PODS {
            let (name, address) = (format!("{}-{}", pod.app, pod.version), pod.address.to_string());
            let folder = if pod.version == "v2" { "shop-later" } else { "shop" };
            let file = read(&format!("{folder}/{name}.yaml"));
            assert!(
                file.contains(&format!("name: {name}\n")) && file.contains(&format!("podIP: {address}\n")),
                "{file}"
            );

            let sidecar = sidecars.split("---\n").find(|s| s.contains(&format!("name: {name},"))).expect(&name);
            let mut expected = vec![
                format!("labels: {{app: {}, version: {}}}\n", pod.app, pod.version),
                format!("number: {INGRESS},"),
                format!("bind: {address}\n"),
                format!("defaultEndpoint: 0.0.0.0:{APP}\n"),
            ];
            expected.extend(pod.next.map(|(host, _)| match host.contains('.') {
                true => format!("\"./{host}\""),
                false => format!("\"./{host}.shop.svc.cluster.local\""),
            }));
            expected.extend(pod.next.map(|(_, port)| format!("number: {port},")));
            for part in expected {
                assert!(sidecar.contains(&part), "the Sidecar {name} lacks {part:?}");
            }
        }
    }
}
