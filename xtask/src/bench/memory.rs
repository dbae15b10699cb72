//! `cargo xtask bench --memory`: what it takes to know a cluster. Memory and processor time from the start until ready, without proxies, and
//! what it costs to list the same objects and throw them away.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;
use serde_json::{Value, json};

use super::Tools;
use super::cluster::Cluster;
use super::objects::{Home, Objects};
use super::plane::Plane;
use super::system::{Istiod, System};
use super::usage::{Cpu, Memory, rest};
use crate::progress;

const SERVICES: usize = 1000;
const PODS_OF_EACH: usize = 10;
const SLICES_OF_EACH: usize = 3;
const NAMESPACES: usize = 50;
/// Of no concern to a mesh, with as much data as a release of Helm or a certificate has.
const SECRETS: usize = 2000;
const SECRET_BYTES: usize = 4096;
const LISTS: [&str; 4] =
    ["/api/v1/pods", "/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/secrets"];
/// Of istiod's memory and processor time, what is promised.
const CLAIMED: [(&str, f64); 2] = [("RSS", 5.0), ("CPU", 3.0)];

/// Of one start, or medians.
#[derive(Debug, Clone, Copy, Serialize)]
struct Start {
    /// Seconds of one core, until it reported ready, and until it had nothing left to do.
    ready_cpu_s: f64,
    rest_cpu_s: f64,
    /// Seconds until it reported ready.
    ready_s: f64,
    /// Megabytes, when it had nothing left to do, and at most.
    rss_mb: f64,
    peak_mb: f64,
}

/// Listing the same objects, whole and once.
#[derive(Debug, Clone, Copy, Serialize)]
struct List {
    megabytes: f64,
    client_cpu_s: f64,
    server_cpu_s: f64,
}

#[derive(Serialize)]
pub(super) struct Starts {
    list: List,
    meltemi: Start,
    /// `None`: it was not measured.
    istiod: Option<Start>,
}

pub(super) fn run(tools: &Tools, rounds: usize, with_istiod: bool, raw: &mut File) -> Result<Starts> {
    let mut work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
    work.disable_cleanup(tools.keep);
    let reference = tools.reference.as_ref().context("looked for before")?;
    let cluster = filled(tools, work.path())?;
    let mut list = None;
    let (mut meltemi, mut istiod) = (Vec::new(), Vec::new());
    for round in 1..=rounds.max(1) {
        list = Some(listed(&cluster)?);
        let ours = || Plane::meltemi_on_cluster(&tools.meltemi, &cluster.kubeconfig, work.path(), &[], None);
        meltemi.push(record(raw, System::Meltemi, round, started(ours)?)?);
        if with_istiod {
            let theirs = || Plane::istiod(reference, &cluster.kubeconfig, work.path(), &[], None);
            istiod.push(record(raw, System::Istiod(Istiod::Default), round, started(theirs)?)?);
        }
    }
    let list = list.context("at least one round")?;
    Ok(Starts { list, meltemi: median(&meltemi), istiod: (!istiod.is_empty()).then(|| median(&istiod)) })
}

fn filled(tools: &Tools, work: &Path) -> Result<Cluster> {
    let reference = tools.reference.as_ref().context("looked for before")?;
    let mesh = work.join("mesh");
    let mut write = Command::new(&tools.loadgen);
    write.arg("mesh").arg(&mesh).arg("--proxies=0");
    write.args([format!("--services={SERVICES}"), format!("--endpoints={PODS_OF_EACH}")]);
    write.args([format!("--slices={SLICES_OF_EACH}"), format!("--namespaces={NAMESPACES}")]);
    progress::step("write the mesh", &mut write)?;
    let mut made = None;
    progress::own_step("start a kube-apiserver and write the mesh to it", || {
        let cluster = Cluster::start(reference, work)?;
        Objects::carry(&mesh, Home::Api(cluster.api()))?;
        let secrets: Vec<Value> = (0..SECRETS).map(secret).collect();
        cluster.api().apply_all(&secrets.iter().collect::<Vec<_>>())?;
        made = Some(cluster);
        Ok(())
    })?;
    made.context("the step above made it")
}

fn secret(number: usize) -> Value {
    let meta = json!({ "name": format!("unrelated-{number}"), "namespace": format!("ns-{}", number % NAMESPACES) });
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque",
        "stringData": { "data": "x".repeat(SECRET_BYTES) },
    })
}

fn listed(cluster: &Cluster) -> Result<List> {
    let server = cluster.processes()[0];
    let (before, own) = (Cpu::of(server)?, children()?);
    let bytes = cluster.api().discard(&LISTS)?;
    let client_cpu_s = children()? - own;
    Ok(List { megabytes: bytes as f64 / 1e6, client_cpu_s, server_cpu_s: Cpu::of(server)?.since(&before) })
}

/// Seconds of one core that programs took which we ran and which ended.
fn children() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds =
        [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Ok(seconds.iter().sum())
}

fn started(start: impl FnOnce() -> Result<Plane>) -> Result<Start> {
    let begun = Instant::now();
    let plane = start()?;
    let (id, ready_s) = (plane.process.id(), begun.elapsed().as_secs_f64());
    let ready_cpu_s = Cpu::of(id)?.since(&Cpu::none());
    rest(id)?;
    let (cpu, memory) = (Cpu::of(id)?, Memory::of(id)?);
    Ok(Start {
        ready_cpu_s,
        rest_cpu_s: cpu.since(&Cpu::none()),
        ready_s,
        rss_mb: memory.resident,
        peak_mb: memory.peak,
    })
}

fn record(raw: &mut File, system: System, round: usize, start: Start) -> Result<Start> {
    writeln!(raw, "{}", json!({ "system": system, "round": round, "start": start }))?;
    eprintln!(
        "  {} {round} ready after {:.1} s and {:.2} CPU s, {:.0} MB",
        system.name(),
        start.ready_s,
        start.ready_cpu_s,
        start.rss_mb
    );
    Ok(start)
}

fn median(starts: &[Start]) -> Start {
    let of = |pick: fn(&Start) -> f64| {
        let mut values: Vec<f64> = starts.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    Start {
        ready_cpu_s: of(|start| start.ready_cpu_s),
        rest_cpu_s: of(|start| start.rest_cpu_s),
        ready_s: of(|start| start.ready_s),
        rss_mb: of(|start| start.rss_mb),
        peak_mb: of(|start| start.peak_mb),
    }
}

impl Starts {
    pub(super) fn text(&self) -> String {
        let (pods, slices) = (SERVICES * PODS_OF_EACH, SERVICES * SLICES_OF_EACH);
        let mut text = format!(
            "\n{pods} pods, {SERVICES} services, {slices} EndpointSlices, {SECRETS} unrelated Secrets on one API server; no proxies\n\n\
             | system | CPU s until ready | until at rest | s until ready | RSS MB at rest | at most |\n|---|---|---|---|---|---|\n"
        );
        let rows = [("meltemi", Some(self.meltemi)), ("istiod", self.istiod)];
        for (name, start) in rows.into_iter().filter_map(|(name, start)| Some((name, start?))) {
            let Start { ready_cpu_s, rest_cpu_s, ready_s, rss_mb, peak_mb } = start;
            let _ = writeln!(
                text,
                "| {name} | {ready_cpu_s:.2} | {rest_cpu_s:.2} | {ready_s:.1} | {rss_mb:.0} | {peak_mb:.0} |"
            );
        }
        let List { megabytes, client_cpu_s, server_cpu_s } = self.list;
        let _ = writeln!(
            text,
            "\nThe bare lists have {megabytes:.1} MB as JSON; reading them and throwing them away takes {client_cpu_s:.2} CPU s (curl), and the API server {server_cpu_s:.2}."
        );
        let Some(istiod) = self.istiod else { return text };
        let ratios = [istiod.rss_mb / self.meltemi.rss_mb, istiod.ready_cpu_s / self.meltemi.ready_cpu_s];
        for ((what, claimed), ratio) in CLAIMED.into_iter().zip(ratios) {
            let holds = if ratio >= claimed { "holds" } else { "**does not hold**" };
            let _ = writeln!(text, "\n{what}: istiod / meltemi = {ratio:.1}; claimed are {claimed}, which {holds}.");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(ready_cpu_s: f64, rss_mb: f64) -> Start {
        Start { ready_cpu_s, rest_cpu_s: ready_cpu_s, ready_s: 1.0, rss_mb, peak_mb: rss_mb }
    }

    #[test]
    fn reports_a_claim_that_does_not_hold() {
        let list = List { megabytes: 1.0, client_cpu_s: 0.1, server_cpu_s: 0.1 };
        let starts = Starts { list, meltemi: start(1.0, 100.0), istiod: Some(start(6.0, 400.0)) };
        let text = starts.text();
        assert!(text.contains("RSS: istiod / meltemi = 4.0; claimed are 5, which **does not hold**"), "{text}");
        assert!(text.contains("CPU: istiod / meltemi = 6.0; claimed are 3, which holds"), "{text}");
    }

    #[test]
    fn a_median_is_taken_figure_by_figure() {
        let middle = median(&[start(3.0, 10.0), start(1.0, 30.0), start(2.0, 20.0)]);
        assert_eq!((middle.ready_cpu_s, middle.rss_mb), (2.0, 20.0));
    }
}
