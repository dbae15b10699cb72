//! `cargo xtask demo`: a shop of three services on this machine, each with a real Envoy, no root and no cluster; with `--kubernetes` on a real
//! cluster.

pub(crate) mod app;
mod cluster_tries;
pub(crate) mod http;
mod kubernetes;
mod mesh;
pub(crate) mod process;
mod shop;
mod tries;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::cluster::Node;
use crate::progress::elapsed;
use kubernetes::{Place, ShopCluster};
use mesh::Mesh;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try everything that the demo offers, and leave; the exit code says whether it worked
    #[arg(long)]
    check: bool,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
    /// The shop on a real Kubernetes cluster: a node that is started for it (root on Linux)
    #[arg(long)]
    kubernetes: bool,
    /// With --kubernetes: a cluster that is there, and has the images (cargo xtask image) as docker.io/library/{meltemi,proxyv2,app}:local
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// With --kubernetes: the number of the node, 0 to 9
    #[arg(long, default_value = "0")]
    number: Node,
    /// The program, if it is not to be built
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if args.kubernetes {
        return on_cluster(args);
    }
    let start = Instant::now();
    let mut mesh = Mesh::start(args.program.clone(), args.keep)?;
    if args.check {
        tries::run(&mut mesh)?;
        drop(mesh);
        eprintln!("demo: everything worked, {}", elapsed(start));
        return Ok(());
    }
    tries::print(&mesh);
    mesh.run_until_stopped()?;
    eprintln!("\ndemo: stopping");
    Ok(())
}

fn on_cluster(args: &Args) -> Result<()> {
    let start = Instant::now();
    let place = args.kubeconfig.clone().map_or(Place::Node(args.number), Place::Kubeconfig);
    let shop = ShopCluster::start(place, args.program.clone())?;
    if args.check {
        cluster_tries::run(&shop)?;
        drop(shop);
        eprintln!("demo: everything worked, {}", elapsed(start));
        return Ok(());
    }
    cluster_tries::print(&shop);
    shop.wait_for_stop();
    eprintln!("\ndemo: stopping");
    Ok(())
}

/// What `cargo xtask test` runs.
pub(crate) fn check(program: PathBuf) -> Result<()> {
    let mut mesh = Mesh::start(Some(program), false)?;
    tries::run(&mut mesh)
}
