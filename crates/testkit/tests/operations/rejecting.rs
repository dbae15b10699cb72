//! A state-of-the-world proxy that rejects its clusters on request.

use anyhow::{Context, Result};
use loadgen::mesh::MeshPlan;
use serde_json::json;
use testkit::grpc::{self, MessageReader, MessageSender};
use tokio::net::TcpStream;
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use wire::google::rpc::Status;

use crate::served::ServedMesh;

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
