//! The load generator: `mesh` writes a synthetic mesh, `csr` requests certificates, `attack` attacks a server, `swarm` runs simulated proxies by commands on stdin.
#![allow(clippy::print_stdout, reason = "its results are lines on stdout")]

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use loadgen::mesh::MeshPlan;
use loadgen::{Swarm, SwarmOptions};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::Value;
use tokio::sync::mpsc;

/// That all attacks hold in a minute.
const ATTACK_SOCKETS: usize = 15_000;

/// A swarm of simulated proxies, and meshes to serve to them.
#[derive(Parser)]
#[command(name = "loadgen")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the objects of a synthetic mesh, and the nodes of its proxies
    Mesh {
        /// Folder to write to
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        #[command(flatten)]
        plan: MeshPlan,
    },
    /// Send certificate signing requests without a pause; prints how many certificates were issued, as one JSON line
    Csr(loadgen::csr::CsrLoad),
    /// Attack a server on this machine, each attack at its fixed rate; prints what came of it, one JSON line for each
    Attack(loadgen::attack::AttackPlan),
    /// Connect simulated proxies to an ADS server. Commands on stdin, results (JSON lines) on stdout:
    /// mark NAME AUDIENCE | connect | reconnect | replace SHARE | behaviour STALLED SILENT SLOW | reject SHARE | settle WAIT_MS QUIET_MS LIMIT_MS
    Swarm {
        /// ADS address, on this machine only
        #[arg(long, value_name = "IP:PORT")]
        server: SocketAddr,
        /// Nodes, one JSON object per line
        #[arg(long, value_name = "FILE")]
        nodes: PathBuf,
        /// Use mutual TLS: each proxy presents a certificate of its service account, signed with the ca-key.pem and ca-cert.pem of this folder,
        /// whose root the server trusts [default: plaintext]
        #[arg(long, value_name = "DIR")]
        authority: Option<PathBuf>,
        /// Use only the first of the nodes
        #[arg(long)]
        proxies: Option<usize>,
        /// Of a hundred proxies, how many never read
        #[arg(long, default_value_t = 0)]
        stalled: usize,
        /// Of a hundred proxies, how many never acknowledge
        #[arg(long, default_value_t = 0)]
        silent: usize,
    },
}

fn main() -> Result<()> {
    match Args::parse().command {
        Command::Mesh { dir, plan } => plan.write(&dir).with_context(|| format!("write to {}", dir.display())),
        Command::Csr(plan) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            println!("{}", runtime.block_on(plan.run())?);
            Ok(())
        }
        Command::Attack(plan) => {
            raise_file_limit(ATTACK_SOCKETS)?;
            // One thread: all attacks together take at most one core.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(plan.run(|line| println!("{line}")))
        }
        Command::Swarm { server, nodes, authority, proxies, stalled, silent } => {
            if !server.ip().is_loopback() {
                bail!("{server} is not on this machine; load goes to loopback only");
            }
            let nodes = read_nodes(&nodes, proxies.unwrap_or(usize::MAX))?;
            raise_file_limit(nodes.len())?;
            // One thread: the other core belongs to the server.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(execute_stdin(&nodes, &SwarmOptions { server, authority, stalled, silent }))
        }
    }
}

fn read_nodes(file: &PathBuf, most: usize) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let nodes = text.lines().take(most).map(|line| serde_json::from_str(line).context("a node is a JSON object"));
    nodes.collect()
}

fn raise_file_limit(proxies: usize) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = proxies as u64 + 100;
    if hard < needed {
        bail!("{proxies} proxies need {needed} open files, and the limit is {hard} (ulimit -Hn)");
    }
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    }
    Ok(())
}

async fn execute_stdin(nodes: &[Value], options: &SwarmOptions) -> Result<()> {
    let mut swarm = Swarm::new(nodes, options)?;
    let (line_in, mut lines) = mpsc::channel(1);
    // It waits in a read and cannot be asked to stop; it ends with stdin or with the program.
    std::thread::spawn(move || {
        let read = std::io::stdin().lines().map_while(Result::ok);
        read.map_while(|line| line_in.blocking_send(line).ok()).count()
    });
    while let Some(line) = lines.recv().await {
        println!("{}", swarm.execute(&line).await?);
    }
    Ok(())
}
