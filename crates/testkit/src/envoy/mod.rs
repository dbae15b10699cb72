//! A stock Envoy: started with a bootstrap of ours, read through its admin socket, killed when dropped.

mod active;
mod bootstrap;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::UnixStream;

pub use active::problems;
pub use bootstrap::{Bootstrap, ServerAddress};

use crate::wait::eventually;

pub struct Envoy {
    child: Child,
    folder: TempDir,
}

impl Envoy {
    /// `wrapper` is a command that runs its arguments, such as `ip netns exec a`; empty: none.
    pub fn start(binary: &Path, wrapper: &[&str], bootstrap: &Bootstrap) -> Result<Envoy> {
        Envoy::run(binary, wrapper, |admin| bootstrap.json(admin))
    }

    /// With these listeners and no control plane.
    pub fn start_static(binary: &Path, listeners: &[Value]) -> Result<Envoy> {
        Envoy::run(binary, &[], |admin| bootstrap::of_listeners(admin, listeners))
    }

    fn run(binary: &Path, wrapper: &[&str], bootstrap: impl FnOnce(&Path) -> Value) -> Result<Envoy> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("bootstrap.json");
        std::fs::write(&file, bootstrap(&folder.path().join("admin")).to_string())?;
        let mut words = wrapper.iter().map(PathBuf::from).chain([binary.to_owned()]);
        let log = std::fs::File::create(folder.path().join("log"))?;
        let child = Command::new(words.next().context("there is at least the binary")?)
            .args(words)
            .arg("--config-path")
            .arg(file)
            .args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"])
            // It warns of every deprecated field; istiod's configuration has hundreds.
            .args(["--component-log-level", "misc:error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("Envoy does not start")?;
        Ok(Envoy { child, folder })
    }

    /// Until it serves what is in its bootstrap.
    pub async fn wait_ready(&mut self) -> Result<()> {
        self.wait("Envoy to be ready", async |envoy: &Envoy| {
            envoy.get("/ready").await.is_ok_and(|state| state == "LIVE\n")
        })
        .await
    }

    /// Until it has clusters and listeners and all of them are warm, or it has rejected an update.
    pub async fn wait_live(&mut self) -> Result<()> {
        self.wait("Envoy to be live", async |envoy: &Envoy| envoy.has_configuration().await.unwrap_or(false)).await
    }

    async fn wait(&mut self, what: &str, holds: impl AsyncFn(&Envoy) -> bool) -> Result<()> {
        let reached = eventually(what, async || {
            if let Some(status) = self.child.try_wait()? {
                bail!("Envoy ended ({status})");
            }
            Ok(holds(self).await)
        });
        reached.await.map_err(|error| anyhow!("{error:#}\n{}", self.log()))
    }

    /// An error means that it does not listen yet.
    async fn has_configuration(&self) -> Result<bool> {
        let stats = self.stats(r"^(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)$").await?;
        let rejected = stats.iter().any(|(name, count)| name.ends_with("rejected") && *count > 0);
        let both = stats.iter().filter(|(name, count)| name.ends_with("success") && *count > 0).count() == 2;
        Ok(rejected || both && self.get("/ready").await? == "LIVE\n")
    }

    /// Counters and gauges whose names match.
    pub async fn stats(&self, pattern: &str) -> Result<Vec<(String, u64)>> {
        let plain: String = pattern.bytes().map(|b| format!("%{b:02x}")).collect();
        let text = self.get(&format!("/stats?filter={plain}")).await?;
        let pair = |line: &str| Some((line.rsplit_once(": ")?.0.to_owned(), line.rsplit_once(": ")?.1.parse().ok()?));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// Its config dump, with endpoints.
    pub async fn config_dump(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.get("/config_dump?include_eds").await?)?)
    }

    /// Warnings and errors that it has printed.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_else(|e| format!("(no log: {e})"))
    }

    async fn get(&self, path: &str) -> Result<String> {
        let io = UnixStream::connect(self.folder.path().join("admin")).await?;
        let (mut connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
        tokio::spawn(driver);
        let request = Request::get(path).header("host", "admin").body(Empty::<Bytes>::new())?;
        let body = connection.send_request(request).await?.into_body().collect().await?.to_bytes();
        Ok(String::from_utf8(body.into())?)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
