//! The shop of `examples/shop-kubernetes` in the cluster, asked from outside through its gateway.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use testkit::environment;
use testkit::http_client::{HttpRequest, send_one};
use tokio::runtime::Runtime;

use crate::mesh::Mesh;

pub(crate) const CHAIN: &str = "front v1 -> cart v1 -> stock v1\n";
const HOST: &str = "shop.example.com";

pub(crate) struct Shop {
    pub(crate) address: SocketAddr,
}

impl Shop {
    /// Stays open for the tests that come after.
    pub(crate) fn open(mesh: &Mesh) -> Result<Shop> {
        let folder = environment::repository().join("examples/shop-kubernetes");
        for path in [folder.join("namespace.yaml"), folder] {
            mesh.kubectl(&["apply", "-f", path_text(&path)?])?;
        }
        for deployment in ["front-v1", "cart-v1", "stock-v1", "ingress"] {
            mesh.rolled_out("shop", deployment)?;
        }
        Shop::behind(mesh, "ingress")
    }

    /// By the address of this Service; the shop is open, and answers there.
    pub(crate) fn behind(mesh: &Mesh, service: &str) -> Result<Shop> {
        let mut given = String::new();
        mesh.until("the gateway to have an address", |mesh| {
            let path = "jsonpath={.status.loadBalancer.ingress[0].ip}";
            given = mesh.kubectl(&["-n", "shop", "get", "service", service, "-o", path])?;
            Ok(!given.is_empty())
        })?;
        let shop = Shop { address: SocketAddr::new(given.parse::<IpAddr>()?, 80) };
        mesh.until("the shop to answer", |_| Ok(shop.ask("/").is_ok_and(|answer| answer == CHAIN)))?;
        Ok(shop)
    }

    /// The body of a successful answer.
    pub(crate) fn ask(&self, path: &str) -> Result<String> {
        Runtime::new()?.block_on(ask(self.address, path))
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic::start(self.address)
    }
}

async fn ask(address: SocketAddr, path: &str) -> Result<String> {
    let answer = send_one(&HttpRequest::new(address, HOST, path)).await?;
    ensure!(answer.status == 200, "{}: {}", answer.status, answer.body);
    Ok(answer.body)
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path in UTF-8")
}

/// Requests one after the other, each on a connection of its own, to see that nothing breaks one. They end with their guard.
pub(crate) struct Traffic {
    sent: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    began: Instant,
    /// `None`: it was waited for.
    sender: Option<JoinHandle<Vec<String>>>,
}

impl Traffic {
    fn start(to: SocketAddr) -> Traffic {
        let (sent, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, stop) = (Arc::clone(&sent), Arc::clone(&ended));
        let sender = std::thread::spawn(move || {
            let runtime = Runtime::new().expect("threads can be had");
            let mut failures = Vec::new();
            let began = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = runtime.block_on(ask(to, "/")) {
                    failures.push(format!("after {:.1} s: {error:#}", began.elapsed().as_secs_f64()));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            failures
        });
        Traffic { sent, ended, began: Instant::now(), sender: Some(sender) }
    }

    /// Waits until that many more were answered.
    pub(crate) fn more(&self, mesh: &Mesh, requests: usize) -> Result<()> {
        let before = self.sent.load(Ordering::Relaxed);
        mesh.until("requests to be answered", |_| Ok(self.sent.load(Ordering::Relaxed) >= before + requests))
    }

    /// Fails if one request failed; otherwise says how many there were.
    pub(crate) fn end(mut self, during: &str) -> Result<()> {
        self.ended.store(true, Ordering::Relaxed);
        let sender = self.sender.take().context("nobody else ends it")?;
        let failures = sender.join().map_err(|_| anyhow::anyhow!("the sender panicked"))?;
        let sent = self.sent.load(Ordering::Relaxed);
        let took = Duration::from_secs(self.began.elapsed().as_secs());
        ensure!(failures.is_empty(), "{during}: {} of {sent} requests failed: {:?}", failures.len(), failures.first());
        testkit::say(&format!("{during}: {sent} requests in {took:?}, none failed"));
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
