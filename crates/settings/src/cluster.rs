//! The flags and variables of the API server that is watched.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use server::settings::ClusterSettings;
use sources::kube::{ApiAccess, EndpointKind, Pacing};

use super::IgnoredValues;
use crate::args::{ClusterEnv, boolean};

pub(super) fn settings(
    kubeconfig: Option<PathBuf>,
    revision: Option<String>,
    rate: f32,
    env: &ClusterEnv,
    ignored: &mut IgnoredValues,
) -> Result<ClusterSettings> {
    let ClusterEnv {
        pod_name,
        pod_ip,
        leader_election,
        status,
        balance,
        addresses,
        watched_namespaces,
        watch_namespace,
        use_endpoint_slice,
        audit_interval,
        access_interval,
    } = env;
    ensure!(
        (1.0..=MAX_QPS).contains(&rate),
        "--kubernetesApiQPS {rate} is not a rate: write a number from 1 to {MAX_QPS}"
    );
    let listed = [watched_namespaces, watch_namespace].into_iter().flatten();
    let namespaces = listed.flat_map(|text| text.split(',')).map(str::trim).filter(|name| !name.is_empty());
    let slices = ignored.read("PILOT_USE_ENDPOINT_SLICE", use_endpoint_slice, true, |text| boolean(text).ok());
    let pacing = Pacing::default();
    let audit = ignored.read("MELTEMI_AUDIT_INTERVAL", audit_interval, pacing.audit, super::go_duration);
    let cache_ttl = ignored.read("MELTEMI_ACCESS_INTERVAL", access_interval, ACCESS_CACHE_TTL, super::go_duration);
    Ok(ClusterSettings {
        // An empty flag is no flag, as in istiod.
        access: ApiAccess { kubeconfig: kubeconfig.filter(|path| !path.as_os_str().is_empty()), rate: rate as u32 },
        namespaces: namespaces.map(Arc::from).collect(),
        endpoints: if slices { EndpointKind::EndpointSlice } else { EndpointKind::Endpoints },
        revision: revision.unwrap_or_default().into(),
        pod_name: pod_name.clone(),
        pod_ip: ignored.read("POD_IP", pod_ip, None, |text| text.parse().ok().map(Some)),
        access_cache_ttl: cache_ttl.max(SHORTEST_AUDIT),
        leader_election: ignored.read("ENABLE_LEADER_ELECTION", leader_election, true, |text| boolean(text).ok()),
        addresses: ignored.read("PILOT_ENABLE_IP_AUTOALLOCATE", addresses, true, |text| boolean(text).ok()),
        balance: ignored.read("MELTEMI_BALANCE_STREAMS", balance, true, |text| boolean(text).ok()),
        status: ignored.read("PILOT_ENABLE_STATUS", status, true, |text| boolean(text).ok()),
        pacing: Pacing { audit: if audit.is_zero() { audit } else { audit.max(SHORTEST_AUDIT) }, ..pacing },
    })
}

const MAX_QPS: f32 = 100_000.0;
/// As long as istiod caches an answer.
const ACCESS_CACHE_TTL: Duration = Duration::from_secs(60);
/// More often would be a load on the API server.
const SHORTEST_AUDIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(env: &ClusterEnv) -> (ClusterSettings, Vec<String>) {
        let mut ignored = IgnoredValues::default();
        let settings = super::settings(None, None, 80.0, env, &mut ignored).unwrap();
        (settings, ignored.0)
    }

    #[test]
    fn namespaces_of_both_variables() {
        let env = ClusterEnv {
            watched_namespaces: Some("shop, bank,,".into()),
            watch_namespace: Some("pay".into()),
            ..ClusterEnv::default()
        };
        let names: Vec<_> = settings(&env).0.namespaces.into_iter().collect();
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["bank", "pay", "shop"]);
        assert!(settings(&ClusterEnv::default()).0.namespaces.is_empty());
    }

    #[test]
    fn a_revision_has_a_mesh_config_of_its_own() {
        let names = ["", "default", "canary"].map(server::settings::mesh_config_map);
        assert_eq!(names.each_ref().map(|name| &**name), ["istio", "istio", "istio-canary"]);
    }

    #[test]
    fn endpoint_slices_are_the_default() {
        let env = |text: &str| ClusterEnv { use_endpoint_slice: Some(text.into()), ..ClusterEnv::default() };
        assert_eq!(settings(&ClusterEnv::default()).0.endpoints, EndpointKind::EndpointSlice);
        assert_eq!(settings(&env("false")).0.endpoints, EndpointKind::Endpoints);
        let (wrong, ignored) = settings(&env("perhaps"));
        assert_eq!((wrong.endpoints, ignored.len()), (EndpointKind::EndpointSlice, 1));
    }

    #[test]
    fn audits_can_be_turned_off_and_have_a_minimum_interval() {
        let audit = |text: &str| {
            settings(&ClusterEnv { audit_interval: Some(text.into()), ..ClusterEnv::default() }).0.pacing.audit
        };
        assert_eq!(
            (audit("0s"), audit("10ms"), audit("5m")),
            (Duration::ZERO, SHORTEST_AUDIT, Duration::from_secs(300))
        );
    }
}
