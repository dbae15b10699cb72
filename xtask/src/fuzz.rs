//! `cargo xtask fuzz TARGET`: coverage-guided fuzzing by cargo-fuzz (libFuzzer) of the targets in `fuzz/`, for a given time. Tests replay the corpus in
//! `tests/fuzz`. The target `translation` mutates whole meshes at random instead; that test runs for a few seconds in the suite.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{progress, project};

const CARGO_FUZZ: &str = "0.13.2";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(value_enum)]
    target: Target,
    /// How long
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Where `translation` begins; a failure prints its own [default: the time]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Target {
    /// Tokens, client certificates, forwarded certificates
    Authenticators,
    /// Certificate signing requests
    Csr,
    /// Header blocks, compared with the crate h2
    Hpack,
    /// Connections, compared with the crate h2
    Http2,
    /// Objects as files and from an API server
    Objects,
    /// Node metadata, compared with prost
    ProtoStruct,
    /// xDS requests, compared with prost
    Requests,
    /// Subscription updates, compared with a plain set
    Subscriptions,
    /// Bodies of the validation webhook
    Webhook,
    /// EnvoyFilters and WasmPlugins of the parity corpus, mutated, from YAML to xDS messages
    Translation,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match args.target {
        Target::Translation => translation(args),
        target => coverage_guided(target, args.minutes),
    }
}

/// With the compiler of the project: coverage needs no nightly one, only sanitizers of memory would, and our code has no unsafe blocks.
fn coverage_guided(target: Target, minutes: u64) -> Result<()> {
    let cargo_fuzz = cargo_fuzz()?;
    let name = clap::ValueEnum::to_possible_value(&target).context("every target has a name")?.get_name().to_owned();
    // The same versions as the project.
    fs::copy(project::root().join("Cargo.lock"), project::root().join("fuzz/Cargo.lock"))?;
    let folder = project::target().join("fuzz");
    // The first folder gets new inputs, the second is the corpus of the project.
    let found = folder.join("corpus").join(&name);
    fs::create_dir_all(&found)?;
    let corpus = project::root().join("tests/fuzz").join(&name);
    let mut fuzz = Command::new(cargo_fuzz);
    fuzz.current_dir(project::root()).args(["fuzz", "run", "--sanitizer", "none", "--fuzz-dir", "fuzz"]);
    fuzz.arg("--target-dir").arg(&folder).arg(&name).arg(&found).arg(&corpus);
    fuzz.args(["--", "-timeout=20", "-rss_limit_mb=2048", &format!("-max_total_time={}", minutes * 60)]);
    progress::step(&format!("fuzz {name} for {minutes} minutes"), &mut fuzz).with_context(|| {
        format!("the input is in fuzz/artifacts/{name}; mend what it breaks, and keep it in tests/fuzz/{name}")
    })
}

/// In the cache folder; installed if it is not there.
fn cargo_fuzz() -> Result<PathBuf> {
    let folder = project::cache()?.join(format!("cargo-fuzz-{CARGO_FUZZ}"));
    let program = folder.join("bin/cargo-fuzz");
    if !program.exists() {
        let mut install = project::cargo(["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ]);
        install.arg("--root").arg(&folder).arg("--target-dir").arg(project::target().join("cargo-fuzz"));
        progress::step("install cargo-fuzz", &mut install)?;
    }
    Ok(program)
}

fn translation(args: &Args) -> Result<()> {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = args.seed.unwrap_or_else(now);
    let words = ["test", "--release", "--package", "testkit", "--test", "fuzz", "--", "--nocapture"];
    let mut fuzz = project::cargo(words);
    fuzz.env("MELTEMI_FUZZ_SECONDS", (args.minutes * 60).to_string()).env("MELTEMI_FUZZ_SEED", seed.to_string());
    progress::step(&format!("fuzz for {} minutes, seed {seed}", args.minutes), &mut fuzz)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_target_has_a_program_and_a_corpus() {
        for target in Target::value_variants().iter().filter(|target| **target != Target::Translation) {
            let value = target.to_possible_value().expect("a name");
            let name = value.get_name();
            assert!(project::root().join(format!("fuzz/src/bin/{name}.rs")).exists(), "{name}");
            assert!(project::root().join(format!("tests/fuzz/{name}")).is_dir(), "{name}");
        }
    }
}
