//! `cargo xtask bench` and `cargo xtask soak`: what changes cost the control plane, with a swarm of simulated proxies; with `--reference`
//! istiod beside it. Load on loopback only. Not part of `cargo xtask test`.

pub(crate) mod abuse;
mod api;
mod authority;
mod claim;
mod cluster;
mod console;
pub(crate) mod csrs;
mod figure;
mod grow;
mod headline;
mod injection;
mod insight;
mod memory;
mod meter;
mod objects;
mod plane;
mod plot;
mod record;
mod report;
mod scenario;
mod size;
pub(crate) mod soak;
mod swarm;
mod system;
mod trial;
mod usage;
mod webhook_latency;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::ValueEnum;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::reference::Reference;
use crate::{progress, project};
use report::Report;
use scenario::Scenario;
use size::Size;
use system::{Istiod, Source};
use trial::{Plan, Trial};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    size: Size,
    /// Medians are taken over so many
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these; connecting happens in any case
    #[arg(long = "scenario", value_enum, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// Measure istiod on a kube-apiserver too (see `cargo xtask setup --reference`)
    #[arg(long)]
    reference: bool,
    /// Settings of istiod: both are measured, and the better counts, figure by figure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "default,tuned")]
    istiod: Vec<Istiod>,
    /// What Meltemi reads [default: api-server with --reference, else folder]
    #[arg(long, value_enum)]
    source: Option<Source>,
    /// What a start costs instead, without proxies: 10,000 pods, 1,000 services, 3,000 EndpointSlices, 2,000 unrelated Secrets on an API server
    #[arg(long, conflicts_with_all = ["grow", "scenarios"])]
    memory: bool,
    /// What injection costs instead: 1,000 pods created at once on an API server
    #[arg(long, conflicts_with_all = ["grow", "scenarios", "memory"])]
    injection: bool,
    /// The table of the README instead: 1,000 scoped proxies over mutual TLS, default settings, istiod beside it on one API server
    #[arg(long, conflicts_with_all = ["grow", "scenarios", "memory", "injection", "source"])]
    headline: bool,
    /// What history and holds cost instead: the same program with and without them, in turns
    #[arg(long, conflicts_with_all = ["grow", "memory", "injection", "headline", "reference"])]
    insight: bool,
    /// How cost grows instead: scoped meshes with 100, 1,000, 10,000 proxies, and with as many services
    #[arg(long)]
    grow: bool,
    /// Figures of the web console instead, in a headless Chromium: first page, tasks while scrolling, what each open page costs the server
    #[arg(long, conflicts_with_all = ["grow", "scenarios", "memory", "injection"])]
    console: bool,
    /// With --console: seconds for each page, twice
    #[arg(long, default_value_t = 20)]
    seconds: usize,
    /// The p99 of a push with so many event streams of the console connected, beside none, in alternating rounds
    #[arg(long, value_name = "N", conflicts_with_all = ["grow", "scenarios", "memory", "injection", "console"])]
    console_clients: Option<usize>,
    /// Print the tables as JSON
    #[arg(long)]
    json: bool,
    /// Folder for raw measurements, tables and plots [default: bench in the build folder]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
}

/// Programs that every trial needs.
struct Tools {
    meltemi: PathBuf,
    loadgen: PathBuf,
    /// `None`: istiod is not measured.
    reference: Option<Reference>,
    /// Somebody pressed Ctrl-C: the phase is the last, and every process ends with it.
    stopped: Arc<AtomicBool>,
    keep: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    args.size.check()?;
    let source = args.source.unwrap_or(if args.reference { Source::ApiServer } else { Source::Folder });
    let tools = Tools::find(
        args.reference || args.memory || args.injection || args.headline || source == Source::ApiServer,
        args.keep,
    )?;
    let dir = args.output.clone().unwrap_or_else(|| project::target().join("bench"));
    fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
    let raw_file = dir.join("raw.jsonl");
    let mut raw = File::create(&raw_file).with_context(|| format!("write {}", raw_file.display()))?;
    let istiod = if args.reference { &args.istiod[..] } else { &[] };
    if args.console {
        return console::pages(&tools, &args.size, args.seconds);
    }
    if let Some(clients) = args.console_clients {
        let cost = console::clients(&tools, &args.size, args.rounds, clients)?;
        show(&dir, "console", args.json, &cost.text(), &cost)?;
    } else if args.memory {
        let starts = memory::run(&tools, args.rounds, args.reference, &mut raw)?;
        show(&dir, "memory", args.json, &starts.text(), &starts)?;
    } else if args.injection {
        let injections = injection::run(&tools, args.rounds, args.reference, &mut raw)?;
        show(&dir, "injection", args.json, &injections.text(), &injections)?;
    } else if args.headline {
        let headline = headline::run(&tools, &args.size, args.rounds, &args.istiod, &mut raw)?;
        show(&dir, "headline", args.json, &headline.text(), &headline)?;
    } else if args.insight {
        let costs = insight::run(&tools, args, source, &mut raw)?;
        show(&dir, "insight", args.json, &costs.text(), &costs)?;
    } else if args.grow {
        let growth = grow::run(&tools, &args.size, args.rounds, (istiod, source), &mut raw)?;
        growth.plot(&dir)?;
        show(&dir, "growth", args.json, &growth.text(), &growth)?;
    } else {
        let scenarios = if args.scenarios.is_empty() { Scenario::value_variants() } else { &args.scenarios };
        let (size, rounds) = (args.size.clone(), args.rounds);
        let plan = Plan { size, scenarios, rounds, istiod, source, writes_status: false, environment: &[] };
        let rows = figure::rows(&Trial::run(&tools, &plan, &mut raw)?);
        let report = Report { claims: claim::claims(&args.size, &rows), mesh: args.size.clone(), source, rows };
        show(&dir, "report", args.json, &report.text(), &report)?;
    }
    eprintln!("raw measurements, tables and plots: {}", dir.display());
    Ok(())
}

/// Prints a table, and leaves it and its JSON twin in the folder.
fn show(dir: &Path, name: &str, as_json: bool, text: &str, data: &impl serde::Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(data)?;
    fs::write(dir.join(format!("{name}.md")), text)?;
    fs::write(dir.join(format!("{name}.json")), &json)?;
    println!("{}", if as_json { &json } else { text });
    Ok(())
}

impl Tools {
    /// MELTEMI_BIN and LOADGEN_BIN, else what a release build gives.
    fn find(with_reference: bool, keep: bool) -> Result<Tools> {
        let reference = with_reference.then(Reference::find).transpose()?;
        let meltemi = match std::env::var_os("MELTEMI_BIN") {
            Some(given) => given.into(),
            None => {
                progress::step("build meltemi", &mut project::shipped())?;
                project::target().join("release/meltemi")
            }
        };
        Tools::new(meltemi, reference, keep)
    }

    /// With LOADGEN_BIN, else what a release build gives.
    fn new(meltemi: PathBuf, reference: Option<Reference>, keep: bool) -> Result<Tools> {
        let loadgen = match std::env::var_os("LOADGEN_BIN") {
            Some(given) => given.into(),
            None => {
                progress::step("build loadgen", &mut project::cargo(["build", "--release", "--package", "loadgen"]))?;
                project::target().join("release/loadgen")
            }
        };
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stopped)).context("listen for Ctrl-C")?;
        }
        Ok(Tools { meltemi, loadgen, reference, stopped, keep })
    }
}
