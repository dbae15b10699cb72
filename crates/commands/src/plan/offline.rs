//! A plan for the proxies that the Pods of a folder imply, computed without a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use admin::{PlanDetail, PlanReport, PlannedConfiguration};
use anyhow::{Context, Result};
use config::object::parse_documents;
use config::store::Snapshot;
use model::{Environment, Proxy};
use server::{PlanOperation, PlannedObjects, Planner};
use views::Views;
use xds::Membership;

use super::super::{folder, input};
use settings::args::{Env, InputArgs, PlanArgs};
use settings::mesh_settings;

/// Which filters the proxies have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvoyBuild {
    Istio,
    /// Without Istio's filters, which are left out for it.
    Stock,
}

pub(super) struct OfflinePlan {
    planned: PlannedObjects,
}

impl OfflinePlan {
    pub(super) fn new(
        path: PathBuf,
        objects: &str,
        args: &PlanArgs,
        env: &Env,
        build: EnvoyBuild,
    ) -> Result<OfflinePlan> {
        let settings = mesh_settings(args.mesh.clone(), &env.mesh);
        let input = InputArgs { path: Some(path), kubeconfig: None, max_file_size: None };
        let loaded = input::read(input, &settings)?;
        let snapshot = loaded.snapshot();
        let views = Views::new(settings.environment());
        views.refresh(&snapshot, Instant::now());
        let _proxies = joined(&views, &snapshot, &settings.environment(), build);
        let planner = Planner::new(views, settings);
        let permit = planner.permit().context("nothing else is planned here")?;
        let operation = if args.delete { PlanOperation::Delete } else { PlanOperation::Apply };
        Ok(OfflinePlan { planned: planner.plan(&permit, parse_documents("", objects), operation)? })
    }

    pub(super) fn report(&self, detail: PlanDetail) -> PlanReport {
        PlanReport::new(&self.planned, |_| true, detail)
    }

    pub(super) fn configuration(&self, proxy: &str) -> Option<PlannedConfiguration> {
        PlannedConfiguration::new(&self.planned, proxy, |_| true)
    }
}

/// The proxies of all Pods with an address.
fn joined(views: &Arc<Views>, snapshot: &Snapshot, environment: &Environment, build: EnvoyBuild) -> Vec<Membership> {
    let mut proxies = Vec::new();
    let mut without_proxy = 0;
    for pod in snapshot.pods.values() {
        let mut node = Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), environment);
        if build == EnvoyBuild::Stock {
            // A list without Istio's filters; an empty one would say that nothing is known.
            node.extensions = vec!["envoy.filters.http.router".to_owned()];
        }
        match Proxy::new(&node).ok().and_then(|proxy| views.join_proxy(proxy).ok()) {
            Some(membership) => proxies.push(membership),
            None => without_proxy += 1,
        }
    }
    if without_proxy > 0 {
        eprintln!("note: {without_proxy} Pods have no address, so that nothing is planned for them");
    }
    proxies
}
