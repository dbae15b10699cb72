//! `cargo xtask parity`: the recorded answers of istiod against ours, by the Rust test or by the arbiter.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{project, setup};

const CORPUS: &str = "tests/parity";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Names of cases, which are folders of tests/parity; none: all
    cases: Vec<String>,
    /// Let this parity.py ask and compare, instead of our own comparer
    #[arg(long, value_name = "FILE")]
    arbiter: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let corpus = project::root().join(CORPUS);
    for case in &args.cases {
        ensure!(corpus.join(case).join("proxies.yaml").exists(), "there is no case {case} in {CORPUS}");
    }
    let mut command = match &args.arbiter {
        Some(arbiter) => by_arbiter(arbiter, &corpus, &args.cases)?,
        None => by_test(&args.cases),
    };
    let status = command.status().with_context(|| format!("start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("answers differ");
    }
    Ok(())
}

fn by_test(cases: &[String]) -> Command {
    let mut command = project::cargo(["test", "--quiet", "--package", "testkit", "--test", "parity"]);
    command.env("MELTEMI_CASES", cases.join(","));
    command
}

fn by_arbiter(arbiter: &Path, corpus: &Path, cases: &[String]) -> Result<Command> {
    let python = setup::tools()?.python;
    let meltemi = project::meltemi()?;
    let off = "--secureGRPCAddr= --httpAddr= --httpsAddr= --monitoringAddr=";
    let serve = format!("{} serve --config {{dir}} --grpcAddr 127.0.0.1:{{port}} {off}", meltemi.display());
    let mut command = Command::new(python);
    command.arg(arbiter).args(["check", "--run", &serve]);
    match cases {
        [] => command.arg("--quiet").args(all_cases(corpus)?),
        _ => command.args(cases.iter().map(|case| corpus.join(case))),
    };
    Ok(command)
}

fn all_cases(corpus: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(corpus).with_context(|| corpus.display().to_string())?;
    let mut found: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    found.retain(|path| path.join("proxies.yaml").exists());
    found.sort();
    Ok(found)
}
