//! `meltemi demo`: the shop on this machine, by this program and an Envoy.

use anyhow::{Context, Result, ensure};
use settings::args::DemoArgs;
use shop::Shop;

use super::CommandOutcome;

pub fn run(args: &DemoArgs) -> Result<CommandOutcome> {
    let envoy = std::path::absolute(&args.envoy)?;
    ensure!(envoy.is_file(), "there is no {}; --envoy names Envoy's program", envoy.display());
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut open = Shop { program, envoy, keep: args.keep }.open()?;
    if !args.check {
        open.run_until_stopped()?;
        return Ok(CommandOutcome::Done);
    }
    if let Err(error) = open.check() {
        eprintln!("demo: {error:#}");
        return Ok(CommandOutcome::Found);
    }
    drop(open);
    eprintln!("demo: everything worked");
    Ok(CommandOutcome::Done)
}
