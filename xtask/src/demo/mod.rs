//! `cargo xtask demo`: a shop of three services on this machine, each with a real Envoy, no root and no cluster.

pub(crate) mod http;
mod mesh;
pub(crate) mod process;
mod shop;
mod tries;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::progress::elapsed;
use mesh::Mesh;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Try everything that the demo offers, and leave; the exit code says whether it worked
    #[arg(long)]
    check: bool,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
    /// The program, where it is built already
    #[arg(skip)]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
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

/// What `cargo xtask test` runs.
pub(crate) fn check(program: PathBuf) -> Result<()> {
    run(&Args { check: true, keep: false, program: Some(program) })
}
