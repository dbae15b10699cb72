//! A delta ADS client that subscribes to one type after the other, as an Envoy does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use wire::google::protobuf::Any;
use wire::google::rpc::Status;

use crate::grpc;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// After a response of the type, a stream without further responses for this long has sent all.
const QUIET: Duration = Duration::from_millis(250);

pub struct AdsClient {
    address: SocketAddr,
    node: Node,
    /// `None` until the first request, which carries the node.
    stream: Option<(grpc::MessageSender, grpc::MessageReader)>,
    resources: BTreeMap<String, BTreeMap<String, Any>>,
    quiet: Duration,
}

impl AdsClient {
    pub fn new(address: SocketAddr, node: Node) -> AdsClient {
        AdsClient { address, node, stream: None, resources: BTreeMap::new(), quiet: QUIET }
    }

    /// For whoever asks again, until the answer is steady.
    pub fn quiet(mut self, quiet: Duration) -> AdsClient {
        self.quiet = quiet;
        self
    }

    /// Subscribes (to everything, if no names are given) and collects until every name is in or the stream has been quiet.
    pub async fn ask(
        &mut self,
        type_url: &str,
        names: &BTreeSet<String>,
        wait: Duration,
    ) -> Result<&BTreeMap<String, Any>> {
        self.subscribe(type_url, names).await?;
        self.resources.entry(type_url.to_owned()).or_default();
        let mut until = Instant::now() + wait;
        let mut answered = false;
        while !(answered && !names.is_empty() && names.iter().all(|name| self.resources[type_url].contains_key(name))) {
            let Some((sender, reader)) = &mut self.stream else { bail!("not connected") };
            let Ok(message) = timeout_at(until, reader.next::<DeltaDiscoveryResponse>()).await else { break };
            let message = message?.context("the control plane ended the stream")?;
            sender.send(&DeltaDiscoveryRequest {
                type_url: message.type_url.clone(),
                response_nonce: message.nonce.clone(),
                ..Default::default()
            });
            answered |= message.type_url == type_url;
            self.apply(message);
            if answered {
                until = Instant::now() + self.quiet;
            }
        }
        Ok(&self.resources[type_url])
    }

    /// The resources of a type that it holds.
    pub fn resources(&self, type_url: &str) -> BTreeMap<String, Any> {
        self.resources.get(type_url).cloned().unwrap_or_default()
    }

    /// Responses of any type within this time; each is ACKed.
    pub async fn count_responses(&mut self, within: Duration) -> Result<usize> {
        let (end, mut count) = (Instant::now() + within, 0);
        loop {
            let Some((sender, reader)) = &mut self.stream else { bail!("not connected") };
            let Ok(message) = timeout_at(end, reader.next::<DeltaDiscoveryResponse>()).await else { return Ok(count) };
            let message = message?.context("the control plane ended the stream")?;
            sender.send(&DeltaDiscoveryRequest {
                type_url: message.type_url.clone(),
                response_nonce: message.nonce.clone(),
                ..Default::default()
            });
            count += 1;
            self.apply(message);
        }
    }

    /// ACKs responses until one of this type, which it NACKs with this reason.
    pub async fn reject(&mut self, type_url: &str, reason: &str, within: Duration) -> Result<()> {
        let end = Instant::now() + within;
        loop {
            let Some((sender, reader)) = &mut self.stream else { bail!("not connected") };
            let message = timeout_at(end, reader.next::<DeltaDiscoveryResponse>()).await.context("no response")?;
            let message = message?.context("the control plane ended the stream")?;
            let rejected = message.type_url == type_url;
            let error = Status { code: 13, message: reason.to_owned(), ..Default::default() };
            sender.send(&DeltaDiscoveryRequest {
                type_url: message.type_url.clone(),
                response_nonce: message.nonce.clone(),
                error_detail: rejected.then_some(error),
                ..Default::default()
            });
            if rejected {
                return Ok(());
            }
            self.apply(message);
        }
    }

    /// Subscribes, and NACKs the first response.
    pub async fn ask_and_reject(&mut self, type_url: &str, reason: &str, within: Duration) -> Result<()> {
        self.subscribe(type_url, &BTreeSet::new()).await?;
        self.reject(type_url, reason, within).await
    }

    async fn subscribe(&mut self, type_url: &str, names: &BTreeSet<String>) -> Result<()> {
        let mut request = DeltaDiscoveryRequest {
            type_url: type_url.to_owned(),
            resource_names_subscribe: names.iter().cloned().collect(),
            ..Default::default()
        };
        if let Some((sender, _)) = &self.stream {
            sender.send(&request);
        } else {
            request.node = Some(self.node.clone());
            let io = TcpStream::connect(self.address).await.context("cannot reach the control plane")?;
            self.stream = Some(grpc::call(io, "control-plane", METHOD, &request).await?);
        }
        Ok(())
    }

    fn apply(&mut self, message: DeltaDiscoveryResponse) {
        let resources = self.resources.entry(message.type_url).or_default();
        for name in &message.removed_resources {
            resources.remove(name);
        }
        resources.extend(message.resources.into_iter().filter_map(|r| Some((r.name, r.resource?))));
    }
}
