//! The whole program on an API server: what it serves, and what it says while the server is away.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use testkit::ads::Client;
use testkit::cluster::{Fault, Faulty};
use testkit::parity::Asker;
use testkit::server::Server;

use super::{in_turn, namespace, service};

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn asker() -> Result<Asker> {
    Asker::new(&json!({ "name": "p", "namespace": "program", "ip": "10.9.9.9" }))
}

#[test]
fn away_at_the_start_it_answers_unavailable_and_then_serves() {
    in_turn(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("program", &json!({}))).await?;
        api.apply(&service("program", "web")).await?;
        let faulty = Faulty::start(cluster.client().await?).await?;
        faulty.set(Fault::Cut);
        let kubeconfig = cluster.kubeconfig_for(&faulty.url(), "any")?;
        let mut server = tokio::task::spawn_blocking(move || Server::on_cluster(&kubeconfig)).await??;
        let mut client = Client::new(server.address, asker()?.node());
        let refused = client.ask(CDS, &BTreeSet::new(), Duration::from_secs(5)).await.err();
        let refused = refused.map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(refused.contains("status 14"), "{refused:?}\n{}", server.log());
        faulty.set(Fault::None);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        let clusters = loop {
            let mut client = Client::new(server.address, asker()?.node());
            match client.ask(CDS, &BTreeSet::new(), Duration::from_secs(5)).await {
                Ok(clusters) => break clusters.clone(),
                Err(error) => {
                    ensure!(tokio::time::Instant::now() < deadline, "{error:#}\n{}", server.log());
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        };
        let web = "outbound|80||web.program.svc.cluster.local";
        ensure!(clusters.contains_key(web), "{:?}", clusters.keys());
        api.delete(&service("program", "web")).await?;
        Ok(())
    });
}
