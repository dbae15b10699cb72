//! The real program, built and started on a folder.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::place;

/// `meltemi serve` on a folder, with nothing but the plaintext ADS port; stopped when dropped.
pub struct Server {
    child: Child,
    log: File,
    pub address: SocketAddr,
}

impl Server {
    /// Returns once the port is open, which is after the first load.
    pub fn start(folder: &Path) -> Result<Server> {
        Server::start_on(folder, SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
    }

    /// In the place of one that is gone.
    pub fn start_on(folder: &Path, address: SocketAddr) -> Result<Server> {
        let log = tempfile::tempfile()?;
        let child = Command::new(program()?)
            .args(["serve", "--config"])
            .arg(folder)
            .args([&format!("--grpcAddr={address}"), "--secureGRPCAddr=", "--httpAddr="])
            .args(["--httpsAddr=", "--monitoringAddr="])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .spawn()
            .context("meltemi does not start")?;
        let mut server = Server { child, log, address };
        server.wait_open(Duration::from_secs(60))?;
        Ok(server)
    }

    fn wait_open(&mut self, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("meltemi ended ({status}):\n{}", self.log());
            }
            ensure!(Instant::now() < end, "meltemi's port is not open after {limit:?}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// All that it has printed.
    pub fn log(&mut self) -> String {
        let mut text = String::new();
        let read = self.log.rewind().and_then(|()| self.log.read_to_string(&mut text));
        read.map_or_else(|e| format!("(no log: {e})"), |_| text)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let id = Pid::from_raw(i32::try_from(self.child.id()).expect("process ids are positive and below 2^22"));
        let _ = kill(id, Signal::SIGTERM);
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that the system gives to no connection that goes out: one of those could be taken again before it is listened on.
const PORTS: Range<u16> = 20_000..30_000;

/// One that nobody listens on, another with each call. Processes begin at different ones.
pub fn free_port() -> Result<u16> {
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new((std::process::id() % 100) as u16 * 100));
    let mut ports = PORTS.map(|_| PORTS.start + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len() as u16);
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).context("no free port")
}

/// The program, freshly built into the folder that this test was built into. Once per process.
pub fn program() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| built().map_err(|e| format!("{e:#}"))).clone().map_err(anyhow::Error::msg)
}

fn built() -> Result<PathBuf> {
    if let Some(given) = place::program() {
        return Ok(given);
    }
    let own = std::env::current_exe()?;
    let outside = "a test stands in target/<profile>/deps";
    let folder = own.ancestors().nth(2).context(outside)?;
    let mut build = Command::new("cargo");
    build.args(["build", "--quiet", "--package", "meltemi", "--target-dir"]).arg(folder.parent().context(outside)?);
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let status = build.current_dir(place::repository()).status().context("cargo does not start")?;
    ensure!(status.success(), "meltemi does not build");
    Ok(folder.join("meltemi"))
}
