//! The whole program on an API server: what it serves, and what it says while the server is away.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::ads::AdsClient;
use testkit::cluster::{ApiFault, FaultProxy};
use testkit::parity::CaseProxy;
use testkit::wait::DEADLINE;

use super::instance::Instance;
use super::{namespace, service, with_cluster};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn proxy() -> Result<CaseProxy> {
    CaseProxy::new(&json!({ "name": "p", "namespace": "program", "ip": "10.9.9.9" }))
}

#[test]
fn away_at_the_start_it_answers_unavailable_and_then_serves() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        for space in ["istio-system", "program"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        api.apply(&service("program", "web")).await?;
        let faulty = FaultProxy::start(cluster.client().await?).await?;
        faulty.set(ApiFault::Cut);
        let kubeconfig = cluster.kubeconfig_for(&faulty.url(), "any")?;
        let server = Instance::start(&kubeconfig, &[], &[]).await?;
        let mut client = AdsClient::new(server.plain, proxy()?.node());
        let error = client.ask(CDS, &BTreeSet::new(), DEADLINE).await.err();
        let error = error.map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(error.contains("status 14"), "{error:?}\n{}", server.log());
        faulty.set(ApiFault::None);
        let server = server.ready().await?;
        let mut client = AdsClient::new(server.plain, proxy()?.node());
        let clusters = client.ask(CDS, &BTreeSet::new(), DEADLINE).await?;
        let web = "outbound|80||web.program.svc.cluster.local";
        ensure!(clusters.contains_key(web), "{:?}", clusters.keys());
        Ok(())
    });
}
