//! The real program, built and started on a folder.

use std::fs::File;
use std::io::{Read, Seek};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::process::Process;
use crate::wait::eventually_blocking;
use crate::{environment, port};

/// `meltemi serve` on a folder, with nothing but the plaintext ADS port; stopped when dropped.
pub struct MeltemiServer {
    process: Process,
    log: File,
    pub address: SocketAddr,
}

impl MeltemiServer {
    /// Returns once the port is open, which is after the first load.
    pub fn start(folder: &Path) -> Result<MeltemiServer> {
        MeltemiServer::start_on(folder, port::reserve_address()?)
    }

    /// On the address of one that has ended.
    pub fn start_on(folder: &Path, address: SocketAddr) -> Result<MeltemiServer> {
        let log = tempfile::tempfile()?;
        let mut command = Command::new(program()?);
        command.args(["serve", "--config"]).arg(folder);
        command.args([&format!("--grpcAddr={address}"), "--secureGRPCAddr=", "--httpAddr="]);
        command.args(["--httpsAddr=", "--monitoringAddr="]).stdout(log.try_clone()?).stderr(log.try_clone()?);
        let mut server = MeltemiServer { process: Process::spawn(&mut command)?, log, address };
        server.wait_open()?;
        Ok(server)
    }

    fn wait_open(&mut self) -> Result<()> {
        let opened = eventually_blocking("meltemi to open its port", || {
            if let Some(status) = self.process.exit_status()? {
                bail!("meltemi ended ({status})");
            }
            Ok(TcpStream::connect(self.address).is_ok())
        });
        opened.map_err(|error| anyhow!("{error:#}\n{}", self.log()))
    }

    /// All that it has printed.
    pub fn log(&mut self) -> String {
        let mut text = String::new();
        let read = self.log.rewind().and_then(|()| self.log.read_to_string(&mut text));
        read.map_or_else(|e| format!("(no log: {e})"), |_| text)
    }
}

/// The program, freshly built into the folder that this test was built into. Once per process.
pub fn program() -> Result<PathBuf> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| build().map_err(|e| format!("{e:#}"))).clone().map_err(anyhow::Error::msg)
}

fn build() -> Result<PathBuf> {
    if let Some(given) = environment::program() {
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
    let status = build.current_dir(environment::repository()).status().context("cargo does not start")?;
    ensure!(status.success(), "meltemi does not build");
    Ok(folder.join("meltemi"))
}
