//! What flags and variables say of the API server that is watched.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use sources::kube::{Access, EndpointKind, Pacing};

use super::Unused;
use crate::args::{Env, truth};
use crate::commands::folder::MESH_MAP;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    pub(crate) access: Access,
    /// WATCHED_NAMESPACES and ISTIO_WATCH_NAMESPACE. Empty: all.
    pub(crate) namespaces: BTreeSet<Arc<str>>,
    /// PILOT_USE_ENDPOINT_SLICE.
    pub(crate) endpoints: EndpointKind,
    pub(crate) pacing: Pacing,
    /// --revision, REVISION. Empty: none.
    pub(crate) revision: Arc<str>,
    /// POD_NAME: who we are among the replicas. `None`: nobody said; the process has a name of its own.
    pub(crate) pod_name: Option<String>,
    /// MELTEMI_ACCESS_INTERVAL: how long it is believed that an account may read Secrets.
    pub(crate) access_fresh: Duration,
    /// ENABLE_LEADER_ELECTION. Off: this replica always writes.
    pub(crate) elects: bool,
    /// PILOT_ENABLE_STATUS.
    pub(crate) status: bool,
    /// MELTEMI_BALANCE_STREAMS: a replica with more than its share of proxies gives some away.
    pub(crate) balance: bool,
    /// PILOT_ENABLE_IP_AUTOALLOCATE.
    pub(crate) addresses: bool,
}

impl ClusterSettings {
    pub(super) fn new(
        kubeconfig: Option<PathBuf>,
        revision: Option<String>,
        rate: f32,
        env: &Env,
        unused: &mut Unused,
    ) -> Result<ClusterSettings> {
        ensure!(
            (1.0..=MOST).contains(&rate),
            "--kubernetesApiQPS {rate} is not a rate: write a number from 1 to {MOST}"
        );
        let listed = [&env.watched_namespaces, &env.watch_namespace].into_iter().flatten();
        let namespaces = listed.flat_map(|text| text.split(',')).map(str::trim).filter(|name| !name.is_empty());
        let slices = unused.read("PILOT_USE_ENDPOINT_SLICE", &env.use_endpoint_slice, true, |text| truth(text).ok());
        let pacing = Pacing::default();
        let audit = unused.read("MELTEMI_AUDIT_INTERVAL", &env.audit_interval, pacing.audit, super::go_duration);
        let fresh = unused.read("MELTEMI_ACCESS_INTERVAL", &env.access_interval, ACCESS_FRESH, super::go_duration);
        Ok(ClusterSettings {
            // An empty flag is no flag, as in istiod.
            access: Access { kubeconfig: kubeconfig.filter(|path| !path.as_os_str().is_empty()), rate: rate as u32 },
            namespaces: namespaces.map(Arc::from).collect(),
            endpoints: if slices { EndpointKind::EndpointSlice } else { EndpointKind::Endpoints },
            revision: revision.or_else(|| env.revision.clone()).unwrap_or_default().into(),
            pod_name: env.pod_name.clone(),
            access_fresh: fresh.max(SHORTEST_AUDIT),
            elects: unused.read("ENABLE_LEADER_ELECTION", &env.leader_election, true, |text| truth(text).ok()),
            addresses: unused.read("PILOT_ENABLE_IP_AUTOALLOCATE", &env.addresses, true, |text| truth(text).ok()),
            balance: unused.read("MELTEMI_BALANCE_STREAMS", &env.balance, true, |text| truth(text).ok()),
            status: unused.read("PILOT_ENABLE_STATUS", &env.status, true, |text| truth(text).ok()),
            pacing: Pacing { audit: if audit.is_zero() { audit } else { audit.max(SHORTEST_AUDIT) }, ..pacing },
        })
    }
}

/// The ConfigMap with the mesh config of a revision: istiod's names.
pub(crate) fn mesh_config_map(revision: &str) -> Arc<str> {
    match revision {
        "" | "default" => MESH_MAP.into(),
        revision => format!("{MESH_MAP}-{revision}").into(),
    }
}

const MOST: f32 = 100_000.0;
/// As long as istiod believes an answer.
const ACCESS_FRESH: Duration = Duration::from_secs(60);
/// More often would be a load on the API server.
const SHORTEST_AUDIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(env: &Env) -> (ClusterSettings, Vec<String>) {
        let mut unused = Unused::default();
        let settings = ClusterSettings::new(None, None, 80.0, env, &mut unused).unwrap();
        (settings, unused.0)
    }

    #[test]
    fn namespaces_of_both_variables() {
        let env = Env {
            watched_namespaces: Some("shop, bank,,".into()),
            watch_namespace: Some("pay".into()),
            ..Env::default()
        };
        let names: Vec<_> = settings(&env).0.namespaces.into_iter().collect();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["bank", "pay", "shop"]);
        assert!(settings(&Env::default()).0.namespaces.is_empty());
    }

    #[test]
    fn a_revision_has_a_mesh_config_of_its_own() {
        let env = Env { revision: Some("canary".into()), ..Env::default() };
        assert_eq!(&*settings(&env).0.revision, "canary");
        let names = ["", "default", "canary"].map(mesh_config_map);
        assert_eq!(names.each_ref().map(|name| &**name), ["istio", "istio", "istio-canary"]);
    }

    #[test]
    fn slices_unless_told_otherwise() {
        let env = |text: &str| Env { use_endpoint_slice: Some(text.into()), ..Env::default() };
        assert_eq!(settings(&Env::default()).0.endpoints, EndpointKind::EndpointSlice);
        assert_eq!(settings(&env("false")).0.endpoints, EndpointKind::Endpoints);
        let (wrong, unused) = settings(&env("perhaps"));
        assert_eq!((wrong.endpoints, unused.len()), (EndpointKind::EndpointSlice, 1));
    }

    #[test]
    fn audits_can_be_turned_off_but_not_made_a_load() {
        let audit = |text: &str| settings(&Env { audit_interval: Some(text.into()), ..Env::default() }).0.pacing.audit;
        assert_eq!(
            (audit("0s"), audit("10ms"), audit("5m")),
            (Duration::ZERO, SHORTEST_AUDIT, Duration::from_secs(300))
        );
    }
}
