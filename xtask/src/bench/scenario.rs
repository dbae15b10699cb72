//! What is done to a mesh, and in which order. Where the objects live, in a folder or an API server, is not known here.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::objects::Objects;
use super::swarm::QUIET;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Scenario {
    /// All proxies connect at once, knowing nothing
    Connect,
    /// Nothing happens, for ten seconds
    Idle,
    /// An endpoint of the service that every proxy sees is replaced
    Endpoint,
    /// An endpoint of a service that one namespace sees becomes unready, or ready again
    EndpointOfOne,
    /// A timeout of the VirtualService that every proxy sees
    VirtualService,
    /// A limit of the DestinationRule that every proxy sees
    DestinationRule,
    /// A Service with endpoints appears in one namespace
    NewService,
    /// It goes again
    DeletedService,
    /// An annotation on a VirtualService
    NoopVirtualService,
    /// An annotation on a Service
    NoopService,
    /// An object is written again as it was
    NoopSave,
    /// Fifty pods of one service are replaced, one every 20 ms
    Rollout,
    /// All proxies lose their streams and connect again with what they hold
    Reconnect,
}

const ROLLOUT_PODS: usize = 50;
const ROLLOUT_PACE: Duration = Duration::from_millis(20);

const SHARED: &str = "istio-system/shared.yaml";
const SHARED_PODS: &str = "istio-system/shared-pods.yaml";
const NEW_SERVICE: &str = "new-service.yaml";

impl Scenario {
    pub(super) fn name(self) -> String {
        self.to_possible_value().expect("no variant is hidden").get_name().to_owned()
    }

    /// How long to wait for the first response. Where none should come, a machine that is busy must not make one look late.
    pub(super) fn patience(self) -> Duration {
        if self.must_reach() { QUIET * 4 } else { QUIET }
    }

    /// Whether some proxy has to hear of it.
    pub(super) fn must_reach(self) -> bool {
        use Scenario::{Idle, NoopSave, NoopService, NoopVirtualService};
        !matches!(self, Idle | NoopSave | NoopService | NoopVirtualService)
    }

    /// Makes the change. Returns how long it took until its last write began, where that matters.
    pub(super) fn change(self, objects: &mut Objects) -> Result<Duration> {
        let begun = Instant::now();
        let mut last = Duration::ZERO;
        match self {
            Scenario::Connect | Scenario::Reconnect | Scenario::Idle => {}
            Scenario::Endpoint => next_pod(objects)?,
            Scenario::EndpointOfOne => objects.edit("ns-0/s-0.yaml", "EndpointSlice", |slice, _| {
                let ready = &mut slice["endpoints"][0]["conditions"]["ready"];
                *ready = json!(*ready != json!(true));
            })?,
            Scenario::VirtualService => objects.edit(SHARED, "VirtualService", |object, step| {
                object["spec"]["http"][1]["timeout"] = json!(format!("{}s", 11 + step));
            })?,
            Scenario::DestinationRule => objects.edit(SHARED, "DestinationRule", |object, step| {
                object["spec"]["trafficPolicy"]["connectionPool"]["tcp"]["maxConnections"] = json!(200 + step);
            })?,
            Scenario::NewService => objects.add(NEW_SERVICE)?,
            Scenario::DeletedService => objects.remove(NEW_SERVICE)?,
            Scenario::NoopVirtualService => objects.edit(SHARED, "VirtualService", annotate)?,
            Scenario::NoopService => objects.edit(SHARED, "Service", annotate)?,
            Scenario::NoopSave => objects.edit(SHARED, "VirtualService", |_, _| ())?,
            Scenario::Rollout => {
                for _ in 0..ROLLOUT_PODS {
                    thread::sleep(ROLLOUT_PACE);
                    last = begun.elapsed();
                    next_pod(objects)?;
                }
            }
        }
        Ok(last)
    }
}

fn annotate(object: &mut Value, step: usize) {
    object["metadata"]["annotations"] = json!({ "bench.meltemi/step": step.to_string() });
}

/// The next pod of the shared service takes the place of the one that has served longest.
fn next_pod(objects: &mut Objects) -> Result<()> {
    let pods = objects.documents(SHARED_PODS)?.to_vec();
    objects
        .edit(SHARED, "EndpointSlice", |slice, _| {
            let Some(endpoints) = slice["endpoints"].as_array_mut() else { return };
            let served = endpoints.last().map(|endpoint| endpoint["targetRef"]["name"].clone());
            let at = pods.iter().position(|pod| Some(&pod["metadata"]["name"]) == served.as_ref()).unwrap_or(0);
            let pod = &pods[(at + 1) % pods.len()];
            let node = pod["spec"]["nodeName"].clone();
            let mut endpoint = endpoints.remove(0);
            endpoint["addresses"] = json!([pod["status"]["podIP"]]);
            endpoint["zone"] = json!(node.as_str().map(|name| name.replace("node", "zone")));
            endpoint["nodeName"] = node;
            endpoint["targetRef"]["name"] = pod["metadata"]["name"].clone();
            endpoints.push(endpoint);
        })
        .context("replace a pod")
}
