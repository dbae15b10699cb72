//! Measured parity: random meshes, asked of a real istiod and of Meltemi for the configuration of the same proxies. Prints how many are equal,
//! and each difference on a small mesh. Run by `cargo xtask differential`.
#![allow(clippy::print_stdout, reason = "its results are on stdout")]

mod edit;
mod generated;
mod istiod;
mod mesh;
mod open;
mod place;
mod planes;
mod pool;
mod rate;
mod record;
mod report;
mod run;
mod shrink;
mod stop;

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use testkit::environment;
use testkit::parity::Corpus;

use crate::open::OpenList;
use crate::planes::Planes;
use crate::pool::Pool;
use crate::report::Report;
use crate::run::Run;
use crate::stop::Stop;

/// Compares Meltemi with a real istiod on random meshes. Exit code 1: a difference that is not listed; 2: it could not run.
#[derive(Parser)]
#[command(name = "cargo xtask differential", bin_name = "cargo xtask differential")]
struct Args {
    /// Which meshes: A..B, without B. A seed makes the same mesh again, until the corpus changes
    #[arg(long, value_name = "A..B", value_parser = seeds, required_unless_present = "case")]
    seeds: Option<Range<u64>>,
    /// Instead: cases of tests/parity, compared with what istiod answers now
    #[arg(long, value_name = "CASE", conflicts_with = "seeds", num_args = 1..)]
    case: Vec<String>,
    /// With --case: write istiod's answers to the case
    #[arg(long, requires = "case")]
    record: bool,
    /// Rounds of edits of each mesh; it is compared after each
    #[arg(long, default_value_t = 2)]
    edits: usize,
    /// Smaller meshes to try for each difference
    #[arg(long, default_value_t = 150, value_name = "N")]
    shrink: usize,
    /// Differences that are known; tests/differential/open.toml if it is not given
    #[arg(long, value_name = "FILE")]
    open: Option<PathBuf>,
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Text,
    Json,
}

fn seeds(text: &str) -> Result<Range<u64>> {
    let (first, end) = text.split_once("..").context("seeds are A..B")?;
    let range = first.parse()?..end.parse()?;
    ensure!(!range.is_empty(), "{text} has no seed");
    Ok(range)
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match &args.seeds {
        Some(seeds) => meshes(&args, seeds.clone()),
        None => cases(&args),
    };
    match outcome {
        Ok(differs) => ExitCode::from(u8::from(differs)),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn meshes(args: &Args, seeds: Range<u64>) -> Result<bool> {
    let listed = args.open.clone().unwrap_or_else(|| environment::repository().join("tests/differential/open.toml"));
    let (open, pool) = (OpenList::read(&listed)?, Pool::open(&Corpus::open()?)?);
    let planes = Planes::start(Stop::listen()?)?;
    let run =
        Run { planes, pool: &pool, open: &open, edits: args.edits, budget: args.shrink, report: Report::default() };
    let report = run.seeds(seeds)?;
    match args.output {
        Output::Text => print!("{report}"),
        Output::Json => println!("{:#}", report.json()),
    }
    Ok(report.differs())
}

fn cases(args: &Args) -> Result<bool> {
    let corpus = Corpus::open()?;
    let mut planes = Planes::start(Stop::listen()?)?;
    let mut differs = false;
    for name in &args.case {
        differs |= !record::case(&mut planes, &corpus.folder.join(name), args.record)?;
    }
    Ok(differs)
}
