//! `cargo xtask fuzz`: translates randomly mutated objects, from YAML to xDS messages, for a given time. The same test runs for a few seconds in
//! the suite.

use anyhow::Result;

use crate::{progress, project};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Where to begin; a failure prints its own [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or_else(now);
    let words = ["test", "--release", "--package", "testkit", "--test", "fuzz", "--", "--nocapture"];
    let mut fuzz = project::cargo(words);
    fuzz.env("MELTEMI_FUZZ_SECONDS", (args.minutes * 60).to_string()).env("MELTEMI_FUZZ_SEED", seed.to_string());
    progress::step(&format!("fuzz for {} minutes, seed {seed}", args.minutes), &mut fuzz)
}
