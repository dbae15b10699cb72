//! A plan for the proxies that the Pods of a folder imply, computed without a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use admin::{PlanDetail, PlanReport};
use anyhow::{Context, Result};
use config::object::parse_documents;
use config::store::Snapshot;
use model::{Environment, Proxy};
use server::{PlanOperation, Planner};
use views::Views;
use xds::Membership;

use super::super::{folder, input};
use settings::args::{Env, InputArgs, MeshArgs, PlanArgs};
use settings::mesh_settings;

pub(super) fn report(path: PathBuf, objects: &str, args: &PlanArgs, env: &Env) -> Result<PlanReport> {
    let MeshArgs { mesh_config, domain, cluster_id, derive_endpoints } = &args.mesh;
    let mesh = MeshArgs {
        mesh_config: mesh_config.clone(),
        domain: domain.clone(),
        cluster_id: cluster_id.clone(),
        derive_endpoints: *derive_endpoints,
    };
    let settings = mesh_settings(mesh, &env.mesh);
    let input = InputArgs { path: Some(path), kubeconfig: None, max_file_size: None };
    let loaded = input::read(input, &settings)?;
    let snapshot = loaded.snapshot();
    let views = Views::new(settings.environment());
    views.refresh(&snapshot, Instant::now());
    let _proxies = joined(&views, &snapshot, &settings.environment());
    let planner = Planner::new(views, settings);
    let permit = planner.permit().context("nothing else is planned here")?;
    let operation = if args.delete { PlanOperation::Delete } else { PlanOperation::Apply };
    let planned = planner.plan(&permit, parse_documents("", objects), operation)?;
    let detail = if args.diff { PlanDetail::FULL } else { PlanDetail::SHORT };
    Ok(PlanReport::new(&planned, |_| true, detail))
}

/// The proxies of all Pods with an address.
fn joined(views: &Arc<Views>, snapshot: &Snapshot, environment: &Environment) -> Vec<Membership> {
    let mut proxies = Vec::new();
    let mut without_proxy = 0;
    for pod in snapshot.pods.values() {
        let node = Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), environment);
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
