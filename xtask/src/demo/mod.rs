//! `cargo xtask demo`: the shop on this machine, each service with a real Envoy, no root and no cluster (crates/shop); with `--kubernetes` on a
//! real cluster.

mod cluster_tries;
mod kubernetes;
mod recording;
mod terminal;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use shop::Shop;

use crate::cluster::Node;
use crate::progress::elapsed;
use crate::{project, setup};
use kubernetes::{Place, ShopCluster};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try everything that the demo offers, and leave; the exit code says whether it worked
    #[arg(long)]
    check: bool,
    /// Do what the recording of the README shows, and write it there as an animated SVG
    #[arg(long, value_name = "FILE", conflicts_with_all = ["check", "kubernetes"])]
    record: Option<PathBuf>,
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
    let program = args.program.clone().map_or_else(project::meltemi, Ok)?;
    let shop = Shop { program, envoy: setup::tools()?.envoy, keep: args.keep };
    let mut open = shop.open()?;
    if let Some(file) = &args.record {
        return recording::record(&open, file);
    }
    if !args.check {
        return open.run_until_stopped();
    }
    open.check()?;
    drop(open);
    eprintln!("demo: everything worked, {}", elapsed(start));
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
    Shop { program, envoy: setup::tools()?.envoy, keep: false }.open()?.check()
}
