//! A state-of-the-world proxy that rejects its clusters on request, and a swarm of which some reject their listeners.

use anyhow::{Context, Result, ensure};
use loadgen::mesh::MeshPlan;
use serde_json::json;
use testkit::grpc::{self, MessageReader, MessageSender};
use tokio::net::TcpStream;
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use wire::google::rpc::Status;

use crate::doctor::run;
use crate::served::{ServedMesh, plan};

const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// Connected until dropped.
pub(crate) struct Rejecting {
    sender: MessageSender,
    _reader: MessageReader,
    nonce: String,
}

impl Rejecting {
    /// It has clusters that it has not answered for.
    pub(crate) async fn connect(mesh: &ServedMesh, plan: &MeshPlan) -> Result<Rejecting> {
        let mut typed = plan.nodes().next().context("a node")?;
        typed["@type"] = json!("type.googleapis.com/envoy.config.core.v3.Node");
        let node: Node = wire::any::unpack(&wire::json::from_value(&typed)?).context("a node")?;
        let request = DiscoveryRequest { node: Some(node), type_url: CLUSTERS.to_owned(), ..Default::default() };
        let method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
        let (sender, mut reader) = grpc::call(TcpStream::connect(mesh.xds).await?, "xds", method, &request).await?;
        let nonce = reader.next::<DiscoveryResponse>().await?.context("a response")?.nonce;
        Ok(Rejecting { sender, _reader: reader, nonce })
    }

    pub(crate) fn reject(&self, reason: &str) {
        let error_detail = Some(Status { code: 13, message: reason.to_owned(), ..Default::default() });
        self.sender.send(&DiscoveryRequest {
            type_url: CLUSTERS.to_owned(),
            response_nonce: self.nonce.clone(),
            error_detail,
            ..Default::default()
        });
    }
}

const FILTER: &str = "
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: poison, namespace: istio-system}
spec:
  configPatches:
  - applyTo: LISTENER
    patch: {operation: MERGE, value: {per_connection_buffer_limit_bytes: 4321}}
";

/// As the scenario `poisoned-filter` of the bench has it: what they reject is held back from them, and other changes reach all.
#[test]
fn what_some_of_a_swarm_reject_is_held_back_from_them() {
    run(async {
        let mesh = ServedMesh::new(&plan(12, 20), &[])?;
        let mut swarm = mesh.swarm().await?;
        for line in ["mark poison all", "reject 10"] {
            swarm.execute(line).await?;
        }
        mesh.write("poison.yaml", FILTER)?;
        mesh.wait_for("holds", || {
            let shown = String::from_utf8(mesh.command(&["nacks"])?.stdout)?;
            Ok(shown.contains("rejected on request") && shown.contains("sent instead: the last good version"))
        })?;
        swarm.execute("mark route all").await?;
        mesh.write("route.yaml", &FILTER.replace("applyTo: LISTENER", "applyTo: CLUSTER").replace("poison", "other"))?;
        let settled = swarm.execute("settle 60000 300 120000").await?;
        ensure!(settled["settled"] == true && settled["missed"] == 0, "not all are reached: {settled}");
        Ok(())
    });
}
