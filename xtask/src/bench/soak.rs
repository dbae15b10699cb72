//! `cargo xtask soak`: objects and proxies come, change and go for minutes, and what the process holds is written down: memory, tasks, open
//! files, threads. All must stay flat.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::figure::median;
use super::objects::{Home, Objects};
use super::plane::{Plane, ProxyTransport};
use super::scenario::Scenario;
use super::size::Size;
use super::swarm::Swarm;
use super::usage::Memory;
use super::{Tools, show};
use crate::{progress, project};

/// One change of objects and one of proxies in each.
const BEAT: Duration = Duration::from_secs(1);
const SAMPLE: Duration = Duration::from_secs(5);
/// Of a hundred proxies, how many are replaced by new ones at each beat.
const REPLACED: usize = 2;
/// All proxies lose their streams at every so many beats.
const STORM: usize = 45;
/// Tables and buffers fill up first; what is held then is compared with what is held at the end.
const WARM_UP: f64 = 0.25;

const CHANGES: [Scenario; 9] = [
    Scenario::Endpoint,
    Scenario::VirtualService,
    Scenario::NewService,
    Scenario::EndpointOfOne,
    Scenario::DestinationRule,
    Scenario::DeletedService,
    Scenario::VirtualServiceOfOne,
    Scenario::NoopLabel,
    Scenario::NoopAnnotation,
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How long
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Simulated proxies
    #[arg(long, default_value_t = 500)]
    proxies: usize,
    #[arg(long, default_value_t = 500)]
    services: usize,
    /// Of a hundred proxies, how many never read
    #[arg(long, default_value_t = 2)]
    stalled: usize,
    /// Print the series as JSON
    #[arg(long)]
    json: bool,
    /// Folder for the series [default: soak in the build folder]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Clone, Serialize)]
struct Sample {
    at_s: f64,
    rss_mb: f64,
    tasks: f64,
    files: f64,
    threads: f64,
    /// Streams that the proxies have open; not judged.
    streams: u64,
}

#[derive(Debug, Serialize)]
struct Verdict {
    what: &'static str,
    /// Medians of the first third after the warm-up, and of the last.
    first: f64,
    last: f64,
    most_growth: f64,
    is_flat: bool,
}

#[derive(Serialize)]
struct Series {
    mesh: Size,
    changes: usize,
    samples: Vec<Sample>,
    verdicts: Vec<Verdict>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.minutes >= 0.5, "--minutes {}: at least half a minute, to tell growth from a start", args.minutes);
    let tools = Tools::find(false, args.keep)?;
    let dir = args.output.clone().unwrap_or_else(|| project::target().join("soak"));
    fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
    let size = Size {
        proxies: args.proxies,
        services: args.services,
        endpoints: 3,
        namespaces: args.services.div_ceil(20),
        scoped: true,
        virtual_services: 30,
        destination_rules: 30,
        gateways: 0,
        gateway_proxies: 0,
        stalled: args.stalled,
        silent: 0,
        tls: false,
    };
    let mut raw = File::create(dir.join("raw.jsonl"))?;
    let (changes, samples) = soak(&tools, &size, Duration::from_secs_f64(args.minutes * 60.0), &mut raw)?;
    let series = Series { mesh: size, changes, verdicts: verdicts(&samples), samples };
    show(&dir, "series", args.json, &series.text(), &series)?;
    ensure!(series.verdicts.iter().all(|verdict| verdict.is_flat), "not flat; the series is in {}", dir.display());
    Ok(())
}

fn soak(tools: &Tools, size: &Size, time: Duration, raw: &mut File) -> Result<(usize, Vec<Sample>)> {
    size.check()?;
    size.raise_file_limit()?;
    let mut work = tempfile::Builder::new().prefix("meltemi-soak-").tempdir().context("make the work folder")?;
    work.disable_cleanup(tools.keep);
    let path = |name: &str| work.path().join(name);
    progress::step("write the mesh", &mut size.mesh_command(&tools.loadgen, &path("mesh")))?;
    let mut objects = Objects::carry(&path("mesh"), Home::Folder { live: path("live"), aside: path("aside") })?;
    let mut plane = Plane::meltemi(&tools.meltemi, &path("live"), work.path(), &[])?;
    let mut swarm =
        Swarm::start(&tools.loadgen, &ProxyTransport::Plain(plane.xds), &path("mesh").join("nodes.jsonl"), size)?;
    swarm.say("mark soak all")?;
    swarm.say("connect")?;
    swarm.settle(Duration::from_secs(10))?;

    let begun = Instant::now();
    let (mut beat, mut sampled, mut samples) = (0, begun, Vec::new());
    while begun.elapsed() < time {
        ensure!(!tools.stopped.load(Ordering::Relaxed), "stopped");
        CHANGES[beat % CHANGES.len()].change(&mut objects).with_context(|| format!("change {beat}"))?;
        beat += 1;
        let churn = if beat % STORM == 0 { "reconnect".to_owned() } else { format!("replace {REPLACED}") };
        swarm.say(&churn)?;
        thread::sleep((BEAT * u32::try_from(beat)?).saturating_sub(begun.elapsed()));
        plane.process.check()?;
        if sampled.elapsed() >= SAMPLE {
            sampled = Instant::now();
            let sample = sample(&plane, &mut swarm, begun)?;
            writeln!(raw, "{}", serde_json::to_string(&sample)?)?;
            eprintln!("  {}", sample.line());
            samples.push(sample);
        }
    }
    Ok((beat, samples))
}

fn sample(plane: &Plane, swarm: &mut Swarm, begun: Instant) -> Result<Sample> {
    let process = plane.process.id();
    let count = |what: &str| Ok::<_, std::io::Error>(fs::read_dir(format!("/proc/{process}/{what}"))?.count() as f64);
    // Waits for nothing: it only counts.
    let seen = swarm.say("settle 0 0 0")?;
    Ok(Sample {
        at_s: begun.elapsed().as_secs_f64(),
        rss_mb: Memory::of(process)?.resident,
        tasks: tasks(plane.monitoring)?,
        files: count("fd")?,
        threads: count("task")?,
        streams: seen["open"].as_u64().unwrap_or(0),
    })
}

fn tasks(monitoring: SocketAddr) -> Result<f64> {
    let url = format!("http://{monitoring}/metrics");
    let out = Command::new("curl")
        .args(["-sf", "--max-time", "10", &url])
        .output()
        .context("curl is needed to read metrics")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let value = text.lines().find_map(|line| line.strip_prefix("meltemi_tasks "));
    value
        .and_then(|value| value.trim().parse().ok())
        .with_context(|| format!("{url} has no meltemi_tasks ({})", out.status))
}

impl Sample {
    fn line(&self) -> String {
        let Sample { at_s, rss_mb, tasks, files, threads, streams } = self;
        format!(
            "{at_s:>5.0} s {rss_mb:>7.1} MB {tasks:>7} tasks {files:>6} files {threads:>4} threads {streams:>6} streams"
        )
    }
}

/// A median of many samples in each third: replacing proxies makes single ones jump.
fn verdicts(samples: &[Sample]) -> Vec<Verdict> {
    let warm = &samples[(samples.len() as f64 * WARM_UP) as usize..];
    let third = warm.len().div_ceil(3);
    let judge = |what: &'static str, value: fn(&Sample) -> f64, share: f64, step: f64| {
        let first = median(warm.iter().take(third).map(value)).unwrap_or(0.0);
        let last = median(warm.iter().rev().take(third).map(value)).unwrap_or(0.0);
        let most_growth = first * share + step;
        Verdict { what, first, last, most_growth, is_flat: last - first <= most_growth }
    };
    vec![
        judge("RSS MB", |s| s.rss_mb, 0.05, 2.0),
        judge("tasks", |s| s.tasks, 0.02, 5.0),
        judge("open files", |s| s.files, 0.02, 5.0),
        judge("threads", |s| s.threads, 0.0, 2.0),
    ]
}

impl Series {
    fn text(&self) -> String {
        let mut text = format!("\n{}; {} changes of objects\n\n", self.mesh, self.changes);
        text += "| s | RSS MB | tasks | open files | threads | streams |\n|---|---|---|---|---|---|\n";
        let every = self.samples.len().div_ceil(30).max(1);
        for Sample { at_s, rss_mb, tasks, files, threads, streams } in self.samples.iter().step_by(every) {
            let _ = writeln!(text, "| {at_s:.0} | {rss_mb:.1} | {tasks} | {files} | {threads} | {streams} |");
        }
        text += "\n| | after warm-up | at the end | may grow by | flat |\n|---|---|---|---|---|\n";
        for Verdict { what, first, last, most_growth, is_flat } in &self.verdicts {
            let flat = if *is_flat { "yes" } else { "**no**" };
            let _ = writeln!(text, "| {what} | {first:.1} | {last:.1} | {most_growth:.1} | {flat} |");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss: fn(f64) -> f64) -> Vec<Sample> {
        let sample = |n: i32| {
            let at_s = f64::from(n) * 5.0;
            Sample {
                at_s,
                rss_mb: rss(at_s),
                tasks: 1000.0 + f64::from(n % 7),
                files: 520.0,
                threads: 4.0,
                streams: 500,
            }
        };
        (1..=120).map(sample).collect()
    }

    fn flat(rss: fn(f64) -> f64) -> bool {
        let all = verdicts(&samples(rss));
        assert!(all[1..].iter().all(|verdict| verdict.is_flat), "{all:?}");
        all[0].is_flat
    }

    #[test]
    fn a_leak_is_distinguished_from_a_warm_up() {
        assert!(flat(|s| 100.0 - 50.0 * (-s / 30.0).exp()), "fills up and stays");
        assert!(!flat(|s| 60.0 + s / 20.0), "three megabytes a minute");
    }
}
