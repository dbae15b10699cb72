//! The server under attack: Meltemi on a folder, with all its ports open.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::bench::plane::{Plane, until};
use shop::http;
use shop::port;
use shop::process::ChildProcess;

pub(super) struct ExposedServer {
    pub(super) plane: Plane,
    /// Probes and debug pages.
    pub(super) http: SocketAddr,
    pub(super) webhook: SocketAddr,
}

impl ExposedServer {
    pub(super) fn start(program: &Path, folder: &Path, work: &Path) -> Result<ExposedServer> {
        let [xds, secure, http, monitoring, webhook] =
            [port::reserve()?, port::reserve()?, port::reserve()?, port::reserve()?, port::reserve()?];
        let mut command = Command::new(program);
        command.arg("serve").arg("--config").arg(folder).arg("--stateDir").arg(work.join("state"));
        command.arg(format!("--grpcAddr={xds}")).arg(format!("--secureGRPCAddr={secure}"));
        command.arg(format!("--httpAddr={http}")).arg(format!("--monitoringAddr={monitoring}"));
        command.arg(format!("--httpsAddr={webhook}")).arg("--log_output_level=all:error");
        // The silent key servers of tenants are on this machine.
        command.env("MELTEMI_ALLOWED_CIDRS_IN_JWKS_URIS", "127.0.0.0/8");
        let mut process = ChildProcess::start("meltemi", work, &mut command)?;
        until("meltemi to listen", &mut process, || TcpStream::connect(xds).is_ok())?;
        Ok(ExposedServer { plane: Plane { process, xds, monitoring, secure: Some(secure) }, http, webhook })
    }

    pub(super) fn memory(&self) -> Result<AllocatedMemory> {
        let page = http::get(self.plane.monitoring, "localhost", "/metrics")?;
        let value = |name: &str| {
            let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.trim().parse::<f64>().ok()).map(|bytes| bytes / 1e6)
        };
        let mb = value("go_memstats_heap_alloc_bytes").context("/metrics has no heap_alloc_bytes")?;
        // Older programs have no such gauge.
        Ok(AllocatedMemory { mb, history_mb: value("meltemi_history_bytes").unwrap_or_default() })
    }
}

/// As the allocator counts it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct AllocatedMemory {
    pub(super) mb: f64,
    /// The part of the history of resources, which is there to stay and has a limit of its own.
    pub(super) history_mb: f64,
}

impl AllocatedMemory {
    pub(super) fn without_history(self) -> f64 {
        self.mb - self.history_mb
    }
}
