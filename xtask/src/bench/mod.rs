//! `cargo xtask bench`: what changes cost the control plane, with a swarm of simulated proxies; with `--reference` istiod beside it. Load on
//! loopback only. Not part of `cargo xtask test`.

mod api;
mod cluster;
mod objects;
mod plane;
mod record;
mod report;
mod scenario;
mod swarm;
mod usage;

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tempfile::TempDir;

use crate::reference::Reference;
use crate::{progress, project};
use cluster::Cluster;
use objects::{Home, Objects};
use plane::{Plane, TUNED};
use record::Record;
use scenario::Scenario;
use swarm::Swarm;
use usage::{Cpu, Memory};

const IDLE: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Simulated proxies
    #[arg(long, default_value_t = 1000)]
    proxies: usize,
    /// Services, with three endpoints each
    #[arg(long, default_value_t = 1000)]
    services: usize,
    #[arg(long, default_value_t = 50)]
    namespaces: usize,
    /// Each proxy sees its own namespace and istio-system only
    #[arg(long)]
    scoped: bool,
    /// Medians are taken over so many
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only these; connecting happens in any case
    #[arg(long = "scenario", value_enum, value_delimiter = ',')]
    scenarios: Vec<Scenario>,
    /// Of a hundred proxies, how many never read
    #[arg(long, default_value_t = 0)]
    stalled: usize,
    /// Measure istiod on a kube-apiserver too (see `cargo xtask setup --reference`)
    #[arg(long)]
    reference: bool,
    /// Settings of istiod: its own, or those that its guides advise for large meshes
    #[arg(long, value_enum, value_delimiter = ',', default_value = "tuned")]
    istiod: Vec<Settings>,
    /// Raw measurements, one JSON object per line [default: bench.jsonl in the build folder]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Settings {
    Default,
    Tuned,
}

/// Programs, folders and the file of a run.
struct Bench<'a> {
    args: &'a Args,
    meltemi: PathBuf,
    loadgen: PathBuf,
    work: TempDir,
    /// Somebody pressed Ctrl-C: the round ends after its phase, and every process with it.
    stopped: Arc<AtomicBool>,
    output: File,
    records: Vec<Record>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    let reference = args.reference.then(Reference::find).transpose()?;
    let (meltemi, loadgen) = programs()?;
    let mut work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
    work.disable_cleanup(args.keep);
    let path = args.output.clone().unwrap_or_else(|| project::target().join("bench.jsonl"));
    let output = File::create(&path).with_context(|| format!("write {}", path.display()))?;
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped)).context("listen for Ctrl-C")?;
    }
    let mut bench = Bench { args, meltemi, loadgen, work, stopped, output, records: Vec::new() };
    bench.write_mesh()?;
    bench.measure(reference.as_ref())?;
    println!("{}", report::report(&bench.records));
    println!("raw measurements: {}", path.display());
    Ok(())
}

/// MELTEMI_BIN and LOADGEN_BIN, else what a release build gives.
fn programs() -> Result<(PathBuf, PathBuf)> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (meltemi, loadgen) = (given("MELTEMI_BIN"), given("LOADGEN_BIN"));
    if meltemi.is_none() || loadgen.is_none() {
        let mut build = project::cargo(["build", "--release", "--package", "meltemi", "--package", "loadgen"]);
        progress::step("build meltemi and loadgen", &mut build)?;
    }
    let built = |name: &str| project::target().join("release").join(name);
    Ok((meltemi.unwrap_or_else(|| built("meltemi")), loadgen.unwrap_or_else(|| built("loadgen"))))
}

impl Bench<'_> {
    fn write_mesh(&self) -> Result<()> {
        let Args { services, namespaces, proxies, scoped, .. } = self.args;
        let mut command = Command::new(&self.loadgen);
        command.arg("mesh").arg(self.mesh()).arg(format!("--services={services}"));
        command.arg(format!("--namespaces={namespaces}")).arg(format!("--proxies={proxies}"));
        if *scoped {
            command.arg("--scoped");
        }
        progress::step("write the mesh", &mut command)
    }

    fn mesh(&self) -> PathBuf {
        self.work.path().join("mesh")
    }

    fn measure(&mut self, reference: Option<&Reference>) -> Result<()> {
        let (live, aside, logs) = (self.folder("live")?, self.folder("aside")?, self.folder("logs")?);
        let mut folder = Objects::carry(&self.mesh(), Home::Folder { live: live.clone(), aside })?;
        let mut cluster = match reference {
            Some(reference) => Some(self.cluster(reference)?),
            None => None,
        };
        for round in 1..=self.args.rounds {
            self.round("meltemi", round, &mut folder, |bench| Plane::meltemi(&bench.meltemi, &live, &logs))?;
            if let (Some(reference), Some((cluster, objects))) = (reference, &mut cluster) {
                for settings in self.args.istiod.clone() {
                    let (name, settings) = match settings {
                        Settings::Default => ("istiod/default", &[][..]),
                        Settings::Tuned => ("istiod/tuned", TUNED),
                    };
                    let config = cluster.kubeconfig.clone();
                    self.round(name, round, objects, |_| Plane::istiod(reference, &config, &logs, settings))?;
                }
            }
        }
        Ok(())
    }

    fn cluster(&self, reference: &Reference) -> Result<(Cluster, Objects)> {
        let cluster = Cluster::start(reference, self.work.path())?;
        let mut objects = None;
        progress::own_step("write the mesh to the API server", || {
            objects = Some(Objects::carry(&self.mesh(), Home::Api(cluster.api()))?);
            Ok(())
        })?;
        Ok((cluster, objects.context("the step above filled it")?))
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.work.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }

    /// A control plane from its start to its end, with every scenario once.
    fn round(
        &mut self,
        system: &str,
        round: usize,
        objects: &mut Objects,
        start: impl FnOnce(&Self) -> Result<Plane>,
    ) -> Result<()> {
        let mut plane = start(self)?;
        let nodes = self.mesh().join("nodes.jsonl");
        let mut swarm = Swarm::start(&self.loadgen, plane.xds, &nodes, self.args.stalled)?;
        for scenario in Scenario::value_variants() {
            let is_wanted = self.args.scenarios.is_empty() || self.args.scenarios.contains(scenario);
            if is_wanted || *scenario == Scenario::Connect {
                let record = phase(system, round, *scenario, &plane, &mut swarm, objects)
                    .with_context(|| format!("{system}, round {round}, {}", scenario.name()))?;
                writeln!(self.output, "{}", record.line())?;
                eprintln!("  {system} round {round} {:<20} {:>8.3} CPU s", scenario.name(), record.cpu);
                self.records.push(record);
                plane.process.check()?;
                ensure!(!self.stopped.load(Ordering::Relaxed), "stopped");
            }
        }
        Ok(())
    }
}

fn phase(
    system: &str,
    round: usize,
    scenario: Scenario,
    plane: &Plane,
    swarm: &mut Swarm,
    objects: &mut Objects,
) -> Result<Record> {
    let process = plane.process.id();
    Memory::forget_peak(process);
    let before = Cpu::of(process)?;
    swarm.say(&format!("mark {}", scenario.name()))?;
    match scenario {
        Scenario::Connect => drop(swarm.say("connect")?),
        Scenario::Reconnect => drop(swarm.say("reconnect")?),
        Scenario::Idle => thread::sleep(IDLE),
        _ => {}
    }
    let written = scenario.change(objects)?;
    let seen = swarm.settle(scenario.patience())?;
    let memory = Memory::of(process)?;
    Ok(Record {
        system: system.to_owned(),
        round,
        scenario,
        cpu: Cpu::of(process)?.since(&before),
        resident: memory.resident,
        peak: memory.peak,
        written: written.as_secs_f64() * 1000.0,
        seen,
    })
}
