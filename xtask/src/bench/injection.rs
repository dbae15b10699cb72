//! `cargo xtask bench --injection`: what it costs to inject many pods that are created at once through an API server, Meltemi's and, with
//! `--reference`, istiod's, by the same webhook, templates and values. How long the webhook takes is the API server's own figure.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};

use super::Tools;
use super::api::Api;
use super::cluster::Cluster;
use super::plane::Plane;
use super::system::{Istiod, System};
use super::usage::{Cpu, rest};
use super::webhook_latency::WebhookLatency;
use crate::project;
use shop::port;

const PODS: usize = 1000;
/// Requests under way at the API server.
const AT_ONCE: usize = 100;
/// Before anything is measured.
const WARM_UP: usize = 50;
/// For a control plane to be trusted by the API server.
const DEADLINE: Duration = Duration::from_secs(60);
const WEBHOOK: &str = "namespace.sidecar-injector.istio.io";
/// Of istiod's latency and processor time, what is promised.
const CLAIMED: [(&str, f64); 2] = [("p99", 2.0), ("CPU", 5.0)];

/// Of one round, or medians.
#[derive(Debug, Clone, Copy, Serialize)]
struct InjectionRound {
    /// Milliseconds of the webhook, as the API server measured them.
    p99_ms: f64,
    mean_ms: f64,
    /// Seconds of one core.
    cpu_s: f64,
    /// Seconds until the last pod was created.
    wall_s: f64,
}

#[derive(Serialize)]
pub(super) struct Injections {
    meltemi: InjectionRound,
    /// `None`: it was not measured.
    istiod: Option<InjectionRound>,
}

pub(super) fn run(tools: &Tools, rounds: usize, with_istiod: bool, raw: &mut File) -> Result<Injections> {
    let mut work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
    work.disable_cleanup(tools.keep);
    let reference = tools.reference.as_ref().context("looked for before")?;
    let cluster = Cluster::start(reference, work.path())?;
    prepare(&cluster.api())?;
    let trial = InjectionTrial { api: cluster.api(), rounds: rounds.max(1) };
    let webhook = port::reserve()?;
    let ours = Plane::meltemi_on_cluster(&tools.meltemi, &cluster.kubeconfig, work.path(), &[], Some(webhook))?;
    let meltemi = trial.measured(&ours, webhook, System::Meltemi, raw)?;
    drop(ours);
    let istiod = if with_istiod {
        let (webhook, own) = (port::reserve()?, [("INJECTION_WEBHOOK_CONFIG_NAME", "istio-sidecar-injector")]);
        let theirs = Plane::istiod(reference, &cluster.kubeconfig, work.path(), &own, Some(webhook))?;
        Some(trial.measured(&theirs, webhook, System::Istiod(Istiod::Default), raw)?)
    } else {
        None
    };
    Ok(Injections { meltemi, istiod })
}

/// The injector's ConfigMap of our chart, which both read, and a Service that is a name for this host.
fn prepare(api: &Api) -> Result<()> {
    api.apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "istio-system" } }))?;
    let helm = match std::env::var_os("MELTEMI_HELM") {
        Some(given) => given.into(),
        None => project::cache()?.join("bin/helm"),
    };
    let mut command = Command::new(helm);
    command.args(["template", "istiod", "-n", "istio-system", "--show-only", "templates/injectorconfigmap.yaml"]);
    command.env("KUBECONFIG", "/dev/null").arg(project::root().join("deploy/helm/meltemi"));
    let made = command.output().context("run helm (`cargo xtask setup` fetches it, or set MELTEMI_HELM)")?;
    ensure!(made.status.success(), "helm template: {}", String::from_utf8_lossy(&made.stderr));
    api.create_yaml("/api/v1/namespaces/istio-system/configmaps", &String::from_utf8(made.stdout)?)?;
    api.apply(&json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "istiod", "namespace": "istio-system" },
        "spec": { "type": "ExternalName", "externalName": "localhost" },
    }))
}

struct InjectionTrial {
    api: Api,
    rounds: usize,
}

impl InjectionTrial {
    fn measured(&self, plane: &Plane, webhook: SocketAddr, system: System, raw: &mut File) -> Result<InjectionRound> {
        let configuration = configuration(webhook.port());
        self.api.apply(&configuration)?;
        let space = |round: usize| format!("{}-{round}", system.name().to_ascii_lowercase().replace([' ', '/'], "-"));
        for round in 0..=self.rounds {
            let labels = json!({ "istio-injection": "enabled" });
            let name = space(round);
            self.api.apply(
                &json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } }),
            )?;
        }
        self.wait_injected(&space(0))?;
        self.api.create_all(&pods(&space(0), WARM_UP), AT_ONCE)?;
        let mut rounds = Vec::new();
        for number in 1..=self.rounds {
            let round = self.round(plane, &space(number))?;
            writeln!(raw, "{}", json!({ "system": system, "round": number, "injection": round }))?;
            eprintln!(
                "  {} {number} p99 {:.1} ms, mean {:.2} ms, {:.2} CPU s, {:.1} s",
                system.name(),
                round.p99_ms,
                round.mean_ms,
                round.cpu_s,
                round.wall_s
            );
            rounds.push(round);
        }
        self.api.delete(&configuration)?;
        for number in 0..=self.rounds {
            self.api.delete_all(&format!("/api/v1/namespaces/{}/pods", space(number)))?;
        }
        Ok(median(&rounds))
    }

    /// The leader has written the caBundle, and the API server knows of it.
    fn wait_injected(&self, space: &str) -> Result<()> {
        let begun = Instant::now();
        for number in 0.. {
            let mut pod = pod(space, number);
            pod["metadata"]["name"] = format!("first-{number}").into();
            match self.api.create(&format!("/api/v1/namespaces/{space}/pods"), &pod) {
                Ok(made) if made["metadata"]["annotations"]["sidecar.istio.io/status"].is_string() => break,
                answer => ensure!(begun.elapsed() < DEADLINE, "no pod is injected: {answer:?}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn round(&self, plane: &Plane, space: &str) -> Result<InjectionRound> {
        let process = plane.process.id();
        let pods = pods(space, PODS);
        rest(process)?;
        let (cpu, latency, begun) = (Cpu::of(process)?, self.latency()?, Instant::now());
        self.api.create_all(&pods, AT_ONCE)?;
        let wall_s = begun.elapsed().as_secs_f64();
        rest(process)?;
        let cpu_s = Cpu::of(process)?.since(&cpu);
        let latency = self.latency()?.since(&latency);
        ensure!(latency.count() >= PODS as f64, "the webhook was asked {} times for {PODS} pods", latency.count());
        let (p99, mean) = (latency.quantile(0.99), latency.mean());
        Ok(InjectionRound { p99_ms: p99 * 1000.0, mean_ms: mean * 1000.0, cpu_s, wall_s })
    }

    fn latency(&self) -> Result<WebhookLatency> {
        Ok(WebhookLatency::parse(&self.api.text("/metrics")?, WEBHOOK))
    }
}

/// As charts make it for a control plane without a revision.
fn configuration(port: u16) -> Value {
    let service = json!({ "name": "istiod", "namespace": "istio-system", "path": "/inject", "port": port });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "istio-sidecar-injector", "labels": { "istio.io/rev": "default" } },
        "webhooks": [{
            "name": WEBHOOK, "clientConfig": { "service": service }, "sideEffects": "None", "failurePolicy": "Fail",
            "admissionReviewVersions": ["v1"],
            "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"] }],
            "namespaceSelector": { "matchLabels": { "istio-injection": "enabled" } },
        }],
    })
}

fn pods(space: &str, count: usize) -> Vec<Value> {
    (0..count).map(|number| pod(space, number)).collect()
}

fn pod(space: &str, number: usize) -> Value {
    let probe = json!({ "httpGet": { "path": "/ready", "port": 8080 } });
    let container = json!({
        "name": "app", "image": "registry.example/shop/cart:1.4.2", "ports": [{ "name": "http", "containerPort": 8080 }],
        "env": [{ "name": "LOG_LEVEL", "value": "info" }], "readinessProbe": probe, "livenessProbe": probe,
        "resources": { "requests": { "cpu": "100m", "memory": "64Mi" } },
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("cart-{number}"), "namespace": space, "labels": { "app": "cart", "version": "v1" } },
        // Here no admission plugin sets it, and the volume of the token needs one.
        "spec": { "serviceAccountName": "default", "containers": [container] },
    })
}

fn median(rounds: &[InjectionRound]) -> InjectionRound {
    let of = |pick: fn(&InjectionRound) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(pick).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    InjectionRound {
        p99_ms: of(|round| round.p99_ms),
        mean_ms: of(|round| round.mean_ms),
        cpu_s: of(|round| round.cpu_s),
        wall_s: of(|round| round.wall_s),
    }
}

impl Injections {
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "\n{PODS} pods created through one API server, {AT_ONCE} requests at once\n\n\
             | system | p99 ms of the webhook | mean ms | CPU s | s until the last pod |\n|---|---|---|---|---|\n"
        );
        let rows = [("meltemi", Some(self.meltemi)), ("istiod", self.istiod)];
        for (name, round) in rows.into_iter().filter_map(|(name, round)| Some((name, round?))) {
            let InjectionRound { p99_ms, mean_ms, cpu_s, wall_s } = round;
            let _ = writeln!(text, "| {name} | {p99_ms:.1} | {mean_ms:.2} | {cpu_s:.2} | {wall_s:.1} |");
        }
        let Some(istiod) = self.istiod else { return text };
        let ratios = [istiod.p99_ms / self.meltemi.p99_ms, istiod.cpu_s / self.meltemi.cpu_s];
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

    #[test]
    fn reports_a_claim_that_does_not_hold() {
        let round = |p99_ms, cpu_s| InjectionRound { p99_ms, mean_ms: 1.0, cpu_s, wall_s: 1.0 };
        let text = Injections { meltemi: round(20.0, 1.0), istiod: Some(round(30.0, 6.0)) }.text();
        assert!(text.contains("p99: istiod / meltemi = 1.5; claimed are 2, which **does not hold**"), "{text}");
        assert!(text.contains("CPU: istiod / meltemi = 6.0; claimed are 5, which holds"), "{text}");
    }
}
