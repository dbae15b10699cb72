//! The control plane without its sockets: objects in, what each proxy would be sent out. Fast enough for the whole corpus.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use config::object::parse_documents;
use config::store::{Snapshot, Store, StoreOptions, Update};
use prost::Message;
use views::Views;
use wire::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use wire::google::protobuf::Any;
use xds::{Membership, Provider, Resource, TypeUrl, Variant};

use super::{Case, CaseProxy, ResourceSource};

pub struct InProcess {
    views: Arc<Views>,
}

impl InProcess {
    pub fn new(case: &Case) -> Result<InProcess> {
        let mut updates = Vec::new();
        for (file, text) in case.texts() {
            let parsed = parse_documents(file, &text);
            ensure!(parsed.complete, "{file} is not read whole: {:?}", parsed.diagnostics);
            updates.extend(parsed.objects.into_iter().map(Update::Put));
        }
        Ok(InProcess::with(updates))
    }

    pub fn with(updates: Vec<Update>) -> InProcess {
        let pod_namespace = model::Environment::default().pod_namespace;
        let mut store = Store::new(StoreOptions { pod_namespace, mesh_config: None });
        InProcess::of(&store.apply(updates))
    }

    /// With these objects.
    pub fn of(snapshot: &Snapshot) -> InProcess {
        let views = Views::new(model::Environment::default());
        views.refresh(snapshot, Instant::now());
        InProcess { views }
    }

    pub fn proxy(&self, proxy: &CaseProxy) -> Result<impl ResourceSource> {
        Ok(Member(self.join(proxy)?))
    }

    pub fn join(&self, proxy: &CaseProxy) -> Result<Membership> {
        Ok(self.views.join(&proxy.node())?)
    }
}

struct Member(Membership);

impl ResourceSource for Member {
    fn ask(&mut self, type_url: &str, names: &BTreeSet<String>) -> Result<BTreeMap<String, Any>> {
        let kind = TypeUrl::from_url(type_url).context("a type that we serve")?;
        let class = &self.0.class;
        let found: Vec<Arc<Resource>> = if names.is_empty() {
            class.since(kind, 0).changed.clone()
        } else {
            names.iter().filter_map(|name| class.named(kind, name)).collect()
        };
        found.iter().map(|resource| sent(resource)).collect()
    }
}

fn sent(resource: &Resource) -> Result<(String, Any)> {
    let entry = DeltaDiscoveryResponse::decode(resource.entry(Variant::Delta))?.resources.pop().context("one entry")?;
    Ok((entry.name, entry.resource.context("it holds an Any")?))
}
