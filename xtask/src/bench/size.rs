//! How large a mesh is, and how its proxies behave. The same words on the command line, for loadgen and in the tables.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;

/// Files that a process has open beside the connections of its proxies.
const OTHER_FILES: u64 = 500;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, clap::Args)]
pub(crate) struct Size {
    /// Simulated proxies
    #[arg(long, default_value_t = 1000)]
    pub(super) proxies: usize,
    #[arg(long, default_value_t = 1000)]
    pub(super) services: usize,
    /// Endpoints of each service
    #[arg(long, default_value_t = 3)]
    pub(super) endpoints: usize,
    /// Namespaces that services and proxies are spread over
    #[arg(long, default_value_t = 50)]
    pub(super) namespaces: usize,
    /// Each proxy sees its own namespace and istio-system only
    #[arg(long)]
    pub(super) scoped: bool,
    /// Of a hundred services, how many have a VirtualService
    #[arg(long, default_value_t = 30)]
    pub(super) virtual_services: usize,
    /// Of a hundred services, how many have a DestinationRule
    #[arg(long, default_value_t = 30)]
    pub(super) destination_rules: usize,
    /// Gateways with a host each; the scenarios about them need some
    #[arg(long, default_value_t = 0)]
    pub(super) gateways: usize,
    /// Gateway proxies that serve them, besides the sidecars
    #[arg(long, default_value_t = 10)]
    pub(super) gateway_proxies: usize,
    /// Of a hundred proxies, how many never read
    #[arg(long, default_value_t = 0)]
    pub(super) stalled: usize,
    /// Of a hundred proxies, how many never acknowledge
    #[arg(long, default_value_t = 0)]
    pub(super) silent: usize,
    /// Proxies connect over mutual TLS, each with a certificate of its service account
    #[arg(long)]
    pub(super) tls: bool,
}

impl Size {
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.services > 0 && self.namespaces > 0, "a mesh has at least one service and one namespace");
        ensure!(self.services <= 60_000, "--services {}: there are addresses for 60000", self.services);
        ensure!(
            self.stalled + self.silent < 100,
            "--stalled and --silent together are of a hundred proxies: less than 100"
        );
        let shares = [self.virtual_services, self.destination_rules];
        ensure!(
            shares.iter().all(|share| *share <= 100),
            "--virtual-services and --destination-rules are of a hundred"
        );
        Ok(())
    }

    /// Connections are files, in the control plane and in loadgen: both inherit the limit.
    pub(super) fn raise_file_limit(&self) -> Result<()> {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let needed = (self.proxies + self.gateway_proxies) as u64 + OTHER_FILES;
        ensure!(
            hard >= needed,
            "{} proxies need {needed} open files, and the limit is {hard}; raise it (ulimit -Hn, or LimitNOFILE of the service you are in)",
            self.proxies
        );
        if soft < hard {
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
        }
        Ok(())
    }

    /// The command that writes such a mesh.
    pub(super) fn mesh_command(&self, loadgen: &Path, dir: &Path) -> Command {
        let mut command = Command::new(loadgen);
        command.arg("mesh").arg(dir);
        let numbers = [
            ("services", self.services),
            ("endpoints", self.endpoints),
            ("namespaces", self.namespaces),
            ("proxies", self.proxies),
            ("virtual-services", self.virtual_services),
            ("destination-rules", self.destination_rules),
            ("gateways", self.gateways),
            ("gateway-proxies", if self.gateways > 0 { self.gateway_proxies } else { 0 }),
        ];
        command.args(numbers.map(|(name, value)| format!("--{name}={value}")));
        if self.scoped {
            command.arg("--scoped");
        }
        command
    }

    /// The namespace of the service with this number.
    pub(super) fn namespace(&self, service: usize) -> String {
        format!("ns-{}", service % self.namespaces)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { services, proxies, namespaces, scoped, stalled, silent, gateways, gateway_proxies, tls, .. } = self;
        let scope = if *scoped { "scoped" } else { "nobody scoped" };
        write!(f, "{services} services x {proxies} proxies in {namespaces} namespaces, {scope}")?;
        if *gateways > 0 {
            write!(f, ", {gateways} Gateways on {gateway_proxies} gateway proxies")?;
        }
        if *stalled > 0 {
            write!(f, ", {stalled} % never read")?;
        }
        if *silent > 0 {
            write!(f, ", {silent} % never acknowledge")?;
        }
        if *tls {
            write!(f, ", mutual TLS")?;
        }
        Ok(())
    }
}
