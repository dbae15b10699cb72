//! One mesh under one control plane after another: each is started, goes through the scenarios, and is ended, as many times as there are
//! rounds.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use tempfile::TempDir;

use super::Tools;
use super::authority::{Authority, P256};
use super::cluster::Cluster;
use super::meter::Meter;
use super::objects::{Home, Objects};
use super::plane::{Environment, Plane};
use super::record::{Record, Seen};
use super::scenario::Scenario;
use super::size::Size;
use super::swarm::Swarm;
use super::system::{Istiod, Source, System};
use super::usage::{Memory, rest};
use crate::progress;

/// istiod's default, and a setting of Meltemi.
const DEBOUNCED: Environment = &[("PILOT_ENABLE_EDS_DEBOUNCE", "true")];
/// Of a hundred proxies in `Scenario::SlowConsumers`.
const SLOW: usize = 5;
/// Of a hundred proxies in `Scenario::PoisonedFilter`.
const REJECTING: usize = 1;

pub(super) struct Plan<'a> {
    pub(super) size: Size,
    /// Connecting happens in any case.
    pub(super) scenarios: &'a [Scenario],
    pub(super) rounds: usize,
    /// Empty: istiod is not measured.
    pub(super) istiod: &'a [Istiod],
    /// Meltemi's.
    pub(super) source: Source,
    /// Whether Meltemi writes the status of objects, its default. istiod writes none by default, and in a new cluster of a thousand objects it
    /// is two minutes of writes.
    pub(super) writes_status: bool,
    /// Meltemi's settings.
    pub(super) environment: Environment<'a>,
}

/// Where the mesh of a control plane is.
#[derive(Clone, Copy)]
enum ConfigSource<'a> {
    Folder(&'a Path),
    Cluster(&'a Cluster),
}

pub(super) struct Trial<'a> {
    tools: &'a Tools,
    plan: &'a Plan<'a>,
    work: TempDir,
    /// Whose certificates proxies show. `None`: plaintext.
    authority: Option<Authority>,
    raw: &'a mut File,
    records: Vec<Record>,
}

/// A control plane that runs, with its proxies.
struct Stage<'a> {
    system: System,
    round: usize,
    /// Ends first: a control plane that has no proxies left ends at once, and in order.
    swarm: Swarm,
    plane: Plane,
    objects: &'a mut Objects,
    companions: Vec<u32>,
    /// Somebody pressed Ctrl-C: the phase is the last.
    stopped: &'a AtomicBool,
}

impl<'a> Trial<'a> {
    /// Each measurement is written to `raw` as it is made.
    pub(super) fn run(tools: &'a Tools, plan: &'a Plan<'a>, raw: &'a mut File) -> Result<Vec<Record>> {
        plan.size.check()?;
        plan.size.raise_file_limit()?;
        let mut work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
        work.disable_cleanup(tools.keep);
        let authority = plan.size.tls.then(|| Authority::new(work.path().join("cacerts"), P256)).transpose()?;
        let mut trial = Trial { tools, plan, work, authority, raw, records: Vec::new() };
        eprintln!("{}", plan.size);
        progress::step("write the mesh", &mut plan.size.mesh_command(&tools.loadgen, &trial.mesh()))?;
        trial.all()?;
        Ok(trial.records)
    }

    fn all(&mut self) -> Result<()> {
        let (live, aside) = (self.folder("live")?, self.folder("aside")?);
        let mut folder = match self.plan.source {
            Source::Folder => Some(Objects::carry(&self.mesh(), Home::Folder { live: live.clone(), aside })?),
            Source::ApiServer => None,
        };
        let mut cluster = match (self.plan.istiod, &folder) {
            ([], Some(_)) => None,
            _ => Some(self.cluster()?),
        };
        for round in 1..=self.plan.rounds {
            match (&mut folder, &mut cluster) {
                (Some(objects), _) => self.meltemi(round, objects, ConfigSource::Folder(&live))?,
                (None, Some((cluster, objects))) => self.meltemi(round, objects, ConfigSource::Cluster(cluster))?,
                (None, None) => {}
            }
            if let Some((cluster, objects)) = &mut cluster {
                for settings in self.plan.istiod {
                    self.istiod(round, *settings, cluster, objects)?;
                }
            }
        }
        Ok(())
    }

    fn meltemi(&mut self, round: usize, objects: &mut Objects, config_source: ConfigSource) -> Result<()> {
        let companions = match config_source {
            ConfigSource::Folder(_) => Vec::new(),
            ConfigSource::Cluster(cluster) => cluster.processes().to_vec(),
        };
        let plane = self.plane(config_source, self.plan.environment)?;
        let mut stage = self.stage(System::Meltemi, round, plane, objects)?;
        stage.companions.extend(&companions);
        self.scenarios(stage)?;
        if self.wanted().any(|scenario| scenario == Scenario::RolloutDebounced) {
            let plane = self.plane(config_source, DEBOUNCED)?;
            let mut stage = self.stage(System::Meltemi, round, plane, objects)?;
            stage.companions.extend(&companions);
            stage.phase(Scenario::Connect, &self.plan.size)?;
            self.keep(stage.phase(Scenario::RolloutDebounced, &self.plan.size)?)?;
        }
        Ok(())
    }

    fn plane(&self, config_source: ConfigSource, environment: Environment) -> Result<Plane> {
        let (program, logs, state) = (&self.tools.meltemi, self.folder("logs")?, self.folder("state")?);
        let mut environment = self.settings(environment)?;
        environment.push(("PILOT_ENABLE_STATUS", if self.plan.writes_status { "true" } else { "false" }));
        match (config_source, &self.authority) {
            (ConfigSource::Cluster(cluster), _) => {
                Plane::meltemi_on_cluster(program, &cluster.kubeconfig, &logs, &environment, None)
            }
            (ConfigSource::Folder(live), None) => Plane::meltemi(program, live, &logs, &environment),
            (ConfigSource::Folder(live), Some(_)) => Plane::meltemi_secure(program, live, &state, &logs, &environment),
        }
    }

    /// With that of the authority.
    fn settings<'e>(&'e self, environment: Environment<'e>) -> Result<Vec<(&'e str, &'e str)>> {
        let own = self.authority.as_ref().map(Authority::setting).transpose()?;
        Ok(environment.iter().copied().chain(own).collect())
    }

    fn istiod(&mut self, round: usize, settings: Istiod, cluster: &Cluster, objects: &mut Objects) -> Result<()> {
        let reference = self.tools.reference.as_ref().context("looked for before the first trial")?;
        let environment = self.settings(settings.environment())?;
        let plane = Plane::istiod(reference, &cluster.kubeconfig, &self.folder("logs")?, &environment, None)?;
        let mut stage = self.stage(System::Istiod(settings), round, plane, objects)?;
        stage.companions.extend(cluster.processes());
        self.scenarios(stage)
    }

    /// In the order that they are declared in. Connecting is what all others rest on.
    fn wanted(&self) -> impl Iterator<Item = Scenario> + use<> {
        let (wanted, size) = (self.plan.scenarios.to_vec(), self.plan.size.clone());
        let is_slow = size.stalled + size.silent > 0;
        let all = Scenario::value_variants().iter().copied();
        all.filter(move |scenario| match scenario {
            Scenario::Connect => true,
            Scenario::SlowConsumers if is_slow => false,
            scenario if !scenario.fits(&size) => false,
            // What came has to go, or the next control plane finds it there.
            Scenario::DeletedService => wanted.contains(scenario) || wanted.contains(&Scenario::NewService),
            scenario => wanted.contains(scenario),
        })
    }

    fn stage<'o>(&self, system: System, round: usize, plane: Plane, objects: &'o mut Objects) -> Result<Stage<'o>>
    where
        'a: 'o,
    {
        let nodes = self.mesh().join("nodes.jsonl");
        let transport = plane.transport(self.authority.as_ref())?;
        let swarm = Swarm::start(&self.tools.loadgen, &transport, &nodes, &self.plan.size)?;
        Ok(Stage { system, round, plane, swarm, objects, companions: Vec::new(), stopped: &self.tools.stopped })
    }

    fn scenarios(&mut self, mut stage: Stage) -> Result<()> {
        for scenario in self.wanted().filter(|scenario| *scenario != Scenario::RolloutDebounced) {
            self.keep(stage.phase(scenario, &self.plan.size)?)?;
        }
        Ok(())
    }

    fn keep(&mut self, record: Record) -> Result<()> {
        writeln!(self.raw, "{}", serde_json::to_string(&record)?)?;
        let Record { system, round, scenario, cpu_s, rss_mb, .. } = &record;
        let (name, reached, of) = (scenario.name(), record.seen.reached, self.plan.rounds);
        eprintln!(
            "  {} {round}/{of} {name:<24} {cpu_s:>8.3} CPU s {rss_mb:>6.0} MB, {reached} proxies reached",
            system.name()
        );
        self.records.push(record);
        Ok(())
    }

    fn cluster(&self) -> Result<(Cluster, Objects)> {
        let reference = self.tools.reference.as_ref().context("looked for before the first trial")?;
        let mut made = None;
        progress::own_step("start a kube-apiserver and write the mesh to it", || {
            let cluster = Cluster::start(reference, self.work.path())?;
            let objects = Objects::carry(&self.mesh(), Home::Api(cluster.api()))?;
            made = Some((cluster, objects));
            Ok(())
        })?;
        made.context("the step above made it")
    }

    fn mesh(&self) -> PathBuf {
        self.work.path().join("mesh")
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.work.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

impl Stage<'_> {
    fn phase(&mut self, scenario: Scenario, size: &Size) -> Result<Record> {
        ensure!(!self.stopped.load(Ordering::Relaxed), "stopped");
        let guests = scenario.guests(size);
        self.invite(&guests, scenario)?;
        let record = self.measure(scenario, size);
        if scenario == Scenario::PoisonedFilter {
            self.swarm.say("reject 0")?;
        }
        self.dismiss(&guests, scenario)?;
        self.plane.process.check()?;
        record.with_context(|| format!("{}, round {}, {}", self.system.name(), self.round, scenario.name()))
    }

    /// Puts the objects in place that only this phase is about.
    fn invite(&mut self, guests: &[(String, serde_json::Value)], scenario: Scenario) -> Result<()> {
        if guests.is_empty() {
            return Ok(());
        }
        self.swarm.say("mark guests all")?;
        for (file, object) in guests {
            self.objects.put(file, object.clone())?;
        }
        self.swarm.settle(scenario.settle_limit()).map(drop)
    }

    fn dismiss(&mut self, guests: &[(String, serde_json::Value)], scenario: Scenario) -> Result<()> {
        if guests.is_empty() {
            return Ok(());
        }
        self.swarm.say("mark without-guests all")?;
        for (file, _) in guests {
            self.objects.remove(file)?;
        }
        self.swarm.settle(scenario.settle_limit()).map(drop)
    }

    fn measure(&mut self, scenario: Scenario, size: &Size) -> Result<Record> {
        if scenario == Scenario::SlowConsumers {
            self.swarm.say("mark behaviour all")?;
            self.swarm.say(&format!("behaviour {SLOW} 0 0"))?;
            self.swarm.settle(scenario.settle_limit())?;
        }
        if scenario == Scenario::PoisonedFilter {
            self.swarm.say("mark poison all")?;
            self.swarm.say(&format!("reject {REJECTING}"))?;
            Scenario::poison(self.objects)?;
            self.swarm.settle(scenario.settle_limit())?;
        }
        let plane = self.plane.process.id();
        Memory::forget_peak(plane);
        let meter = Meter::start(plane, self.swarm.id(), &self.companions)?;
        self.swarm.say(&format!("mark {} {}", scenario.name(), scenario.audience(size)))?;
        if let Some(command) = scenario.command() {
            self.swarm.say(command)?;
        }
        let written = scenario.change(self.objects)?;
        self.swarm.settle(scenario.settle_limit())?;
        rest(plane)?;
        // What it did meanwhile may have reached somebody.
        let seen = Seen::read(self.swarm.settle_again()?)?;
        let (spent, memory) = (meter.stop()?, Memory::of(plane)?);
        Ok(Record {
            system: self.system,
            round: self.round,
            scenario,
            cpu_s: spent.plane,
            loadgen_cpu_s: spent.swarm,
            busy: spent.busy,
            wall_s: spent.wall,
            rss_mb: memory.resident,
            peak_mb: memory.peak,
            written_ms: written.as_secs_f64() * 1000.0,
            seen,
            mesh: size.clone(),
        })
    }
}
