//! Every claimed parity case through the API server: what the watches bring gives the answers that were recorded from istiod.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use config::diagnostic::ObjectId;
use config::kind::Kind;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use sources::kube::Pacing;
use testkit::cluster::{ApiWriter, AppliedObject, WatchedStore, options};
use testkit::parity::{Case, Comparison, Corpus, InProcess, ResponsesByProxy, compare, fetch_resources};
use testkit::say;
use tokio::time::sleep;

use super::{namespace, with_cluster};

#[test]
fn claimed_cases_through_the_api_server_are_equal() {
    with_cluster(async |cluster| {
        let corpus = Corpus::open()?;
        let (api, began) = (cluster.api().await?, Instant::now());
        let mut cases = corpus.demanded().iter().map(|name| corpus.case(name)).collect::<Result<Vec<_>>>()?;
        // The base is written once; those without it come last.
        cases.sort_by_key(|case| !case.objects.contains_key("base.yaml"));
        let hidden = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "kubernetes", "namespace": "default", "annotations": { "networking.istio.io/exportTo": "~" } },
        });
        api.apply(&hidden).await?;
        let live = WatchedStore::start(cluster.client().await?, options(Pacing::default())).await;
        let mut contents = Contents { api, live, objects: BTreeMap::new(), namespaces: BTreeSet::new() };
        let mut wrong = Vec::new();
        let mut resources = 0;
        for case in &cases {
            let ages = contents.become_case(case).await?;
            let mut found = contents.compare(case)?;
            if !found.equal() && ages > 1 {
                contents.become_equally_old(case).await?;
                found = contents.compare(case)?;
            }
            resources += found.total;
            if !found.equal() {
                wrong.push(format!("{}: {}", case.name, found.lines[..found.lines.len().min(6)].join("\n  ")));
            }
        }
        ensure!(wrong.is_empty(), "{} of {} cases differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
        let (count, took) = (cases.len(), began.elapsed().as_secs());
        say(&format!("parity: {count} cases equal through the API server, {resources} resources, {took} s"));
        Ok(())
    });
}

type Key = (String, String, String, String);

/// What the API server has, besides what it made itself.
struct Contents {
    api: ApiWriter,
    live: WatchedStore,
    objects: BTreeMap<Key, Value>,
    /// They cannot be deleted: nobody would empty them.
    namespaces: BTreeSet<String>,
}

impl Contents {
    fn compare(&self, case: &Case) -> Result<Comparison> {
        let plane = InProcess::of(&self.live.received.store.snapshot());
        let ask = |proxy| fetch_resources(&mut plane.proxy(proxy)?, proxy);
        let got: Result<ResponsesByProxy> =
            case.proxies.iter().map(|proxy| Ok((proxy.name.clone(), ask(proxy)?))).collect();
        Ok(compare(&case.name, &case.expected()?, &got?))
    }

    /// The objects of a case are equally old where it was recorded; a second that ended while they were written lets older ones win.
    async fn become_equally_old(&mut self, case: &Case) -> Result<()> {
        for _ in 0..5 {
            let young = case.objects.iter().filter(|(file, _)| **file != "base.yaml").flat_map(|(_, objects)| objects);
            let young: Vec<Value> = young.filter(|it| self.objects.contains_key(&key(it))).cloned().collect();
            let written = self.delete(&young).await?;
            self.live.catch_up(&written, &young.iter().filter_map(id).collect()).await?;
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
            sleep(Duration::from_nanos(1_000_000_000 - u64::from(since.subsec_nanos()))).await;
            if self.become_case(case).await? <= 1 {
                break;
            }
        }
        Ok(())
    }

    /// In how many seconds its objects were made, the base apart.
    async fn become_case(&mut self, case: &Case) -> Result<usize> {
        let mut wanted = BTreeMap::new();
        for object in case.objects.values().flatten() {
            if self.api.knows(object).await {
                wanted.insert(key(object), object.clone());
            }
        }
        let gone: Vec<Value> =
            self.objects.iter().filter(|(key, it)| wanted.get(*key) != Some(*it)).map(|(_, it)| it.clone()).collect();
        let mut written = self.delete(&gone).await?;
        let deleted: HashSet<ObjectId> = gone.iter().filter_map(id).collect();
        self.live.catch_up(&written, &deleted).await?;
        let mut ages = BTreeSet::new();
        for (file, objects) in &case.objects {
            let fresh =
                objects.iter().filter(|it| wanted.get(&key(it)) == Some(*it) && !self.objects.contains_key(&key(it)));
            let fresh: Vec<Value> = fresh.cloned().collect();
            let made = self.write(&fresh).await?;
            if *file != "base.yaml" {
                ages.extend(made.iter().map(|it| it.created.clone()));
            } else if !fresh.is_empty() {
                // The case is younger.
                sleep(Duration::from_millis(1100)).await;
            }
            written.extend(made);
        }
        self.live.catch_up(&written, &HashSet::new()).await?;
        Ok(ages.len())
    }

    /// In the order of their names, so that age, which the API server gives by the second, orders them as the folder does, where they are
    /// equally old.
    async fn write(&mut self, objects: &[Value]) -> Result<Vec<AppliedObject>> {
        self.make_namespaces(objects).await?;
        let mut written = Vec::new();
        let place = |kind: &str| match kind {
            "Namespace" | "Node" => 0,
            "Service" | "ServiceAccount" | "ConfigMap" | "Pod" => 1,
            _ => 2,
        };
        let mut by_kind: BTreeMap<(usize, String), Vec<Value>> = BTreeMap::new();
        for object in objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            by_kind.entry((place(kind), kind.to_owned())).or_default().push(object.clone());
        }
        for phase in 0..3 {
            let kinds = by_kind.iter().filter(|((place, _), _)| *place == phase).map(|(_, objects)| objects);
            let done = try_join_all(kinds.map(|objects| self.write_in_order(objects))).await?;
            written.extend(done.into_iter().flatten());
        }
        self.objects.extend(objects.iter().map(|object| (key(object), object.clone())));
        Ok(written)
    }

    async fn write_in_order(&self, objects: &[Value]) -> Result<Vec<AppliedObject>> {
        let mut objects: Vec<&Value> = objects.iter().collect();
        objects.sort_by_key(|object| {
            let (.., namespace, name) = key(object);
            (name, namespace)
        });
        let mut written = Vec::new();
        for object in objects {
            written.push(self.api.apply(object).await?);
        }
        Ok(written)
    }

    async fn make_namespaces(&mut self, objects: &[Value]) -> Result<()> {
        let places = objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str());
        let missing: BTreeSet<String> = places.filter(|it| !self.namespaces.contains(*it)).map(str::to_owned).collect();
        let made: Vec<Value> = missing.iter().map(|name| namespace(name, &json!({}))).collect();
        self.api.apply_all(&made).await?;
        self.namespaces.extend(missing);
        Ok(())
    }

    async fn delete(&mut self, objects: &[Value]) -> Result<Vec<AppliedObject>> {
        let (spaces, others): (Vec<Value>, Vec<Value>) =
            objects.iter().cloned().partition(|object| object["kind"] == "Namespace");
        self.api.delete_all(&others).await?;
        let bare: Vec<Value> = spaces
            .iter()
            .map(|it| namespace(it["metadata"]["name"].as_str().unwrap_or_default(), &json!({})))
            .collect();
        objects.iter().for_each(|object| drop(self.objects.remove(&key(object))));
        self.api.apply_all(&bare).await
    }
}

fn key(object: &Value) -> Key {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let meta = &object["metadata"];
    (text(&object["apiVersion"]), text(&object["kind"]), text(&meta["namespace"]), text(&meta["name"]))
}

/// `None`: nothing that is watched, or never deleted.
fn id(object: &Value) -> Option<ObjectId> {
    let (version, kind, namespace, name) = key(object);
    let kind = Kind::from_gvk(&version, &kind).filter(|kind| !matches!(kind, Kind::Namespace))?;
    let namespace = match namespace.as_str() {
        _ if !kind.is_namespaced() => "",
        "" => "default",
        given => given,
    };
    Some(ObjectId { kind, namespace: namespace.into(), name: name.into() })
}
