//! `meltemi explain object`: what an object became, whom it reaches, and what of it has no effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::diagnostic::ObjectId;
use model::Proxy;
use provenance::{ObjectExplanation, ObjectHolder, ObjectReach, ReachState};

use super::{OfflineMesh, decisions_text, encoded, place};
use crate::object_name::object_id;
use crate::replica_pages::{OfReplica, ReplicaPages};
use crate::{CommandOutcome, client, counted, folder, print};
use settings::args::{Env, ExplainObjectArgs, ExplainSource, Listing};

/// Lines of a list; `-o json` has all.
const SHOWN: usize = 20;

/// Ends with 1 if an error is known or a proxy rejects it.
pub(super) fn run(args: ExplainObjectArgs, env: &Env) -> Result<CommandOutcome> {
    let ExplainObjectArgs { kind, name, output, source } = args;
    let ExplainSource { target, config, mesh } = source;
    let id = object_id(&kind, &name)?;
    let is_offline = config.is_some();
    let explained = match OfflineMesh::read(config, mesh, env)? {
        Some(offline) => explain_offline(&offline, &id),
        None => {
            let page = format!("/debug/explain/object?kind={}&name={}", id.kind.name(), encoded(&name));
            let answers = client::run(async {
                ReplicaPages::find(&target)
                    .await?
                    .read::<ObjectExplanation>(&page, "the explanation of an object")
                    .await
            })?;
            merged(answers).context("no replica answered")?
        }
    };
    // Of an invalid object the notes tell.
    if !explained.in_use && explained.notes.is_empty() && explained.resources.is_empty() {
        bail!("there is no {id}{}", if is_offline { "" } else { " at this server" });
    }
    match output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&explained)?)),
        Listing::Text => print(&text(&explained)),
    }
    let is_wrong = explained.notes.iter().any(|note| note.severity == "error")
        || explained.proxies.iter().any(|proxy| proxy.state == Some(ReachState::Rejected));
    Ok(if is_wrong { CommandOutcome::Found } else { CommandOutcome::Done })
}

/// With the Pods of the folder as proxies.
fn explain_offline(offline: &OfflineMesh, id: &ObjectId) -> ObjectExplanation {
    let snapshot = offline.mesh.snapshot();
    let nodes = snapshot
        .pods
        .values()
        .map(|pod| Proxy::new(&Proxy::node_of_pod(pod, folder::proxy_kind(None, &pod.meta), &offline.environment)));
    // A Pod without an address runs no proxy yet.
    let proxies: Vec<Arc<Proxy>> = nodes.filter_map(Result::ok).map(Arc::new).collect();
    let holders = proxies.iter().filter_map(|proxy| {
        let rendered = views::render(&offline.mesh, &offline.mesh.place(proxy)).into_iter();
        let own = rendered.filter(|it| it.made_from.contains(id) || it.patched.iter().any(|patch| patch.object == *id));
        let resources: Vec<_> = own.map(|it| (it.kind, it.name)).collect();
        (!resources.is_empty()).then(|| ObjectHolder { proxy: proxy.clone(), resources })
    });
    let holders: Vec<_> = holders.collect();
    provenance::explain_object(&offline.mesh, id, &[], &holders, &proxies)
}

/// One explanation of those of all replicas: each has its own proxies.
fn merged(answers: Vec<OfReplica<ObjectExplanation>>) -> Option<ObjectExplanation> {
    let mut answers = answers.into_iter().map(|answer| answer.value);
    let mut all = answers.next()?;
    let mut reach: BTreeMap<(String, String), usize> = BTreeMap::new();
    let first = std::mem::take(&mut all.resources);
    let mut add = |resources: Vec<ObjectReach>| {
        for ObjectReach { kind, name, proxies } in resources {
            *reach.entry((kind, name)).or_default() += proxies;
        }
    };
    add(first);
    for other in answers {
        add(other.resources);
        // What one replica examined with effect has one.
        if other.examined > 0 && all.examined > 0 {
            all.without_effect.retain(|field| other.without_effect.contains(field));
        } else if other.examined > 0 {
            all.without_effect = other.without_effect;
        }
        all.examined += other.examined;
        all.proxies.extend(other.proxies);
        all.notes.extend(other.notes);
        let new = other.decisions.into_iter().filter(|it| !all.decisions.contains(it)).collect::<Vec<_>>();
        all.decisions.extend(new);
    }
    all.notes.sort();
    all.notes.dedup();
    all.resources = reach.into_iter().map(|((kind, name), proxies)| ObjectReach { kind, name, proxies }).collect();
    Some(all)
}

fn text(explained: &ObjectExplanation) -> String {
    let ObjectExplanation { object, at, in_use, notes, resources, proxies, without_effect, examined, decisions } =
        explained;
    let mut text = format!("{object}{}\n", place(at.as_ref()));
    if !in_use {
        text.push_str("  it is not in use\n");
    }
    for note in notes {
        let field = if note.field.is_empty() { String::new() } else { format!("{}: ", note.field) };
        text.push_str(&format!("  {}: {field}{}\n", note.severity, note.what));
    }
    if resources.is_empty() {
        text.push_str("\nNo proxy has a resource that is made from it.\n");
    } else {
        text.push_str(&format!("\nIn {}:\n", counted(resources.len(), "resource", "resources")));
        let of = |count| counted(count, "proxy", "proxies");
        text.push_str(&shortened(resources.iter().map(|it| format!("  {} {}  {}", it.kind, it.name, of(it.proxies)))));
        text.push_str(&format!("\nOf {}:\n", of(proxies.len())));
    }
    text.push_str(&shortened(proxies.iter().map(|it| {
        let state = match it.state {
            None => "",
            Some(ReachState::Acknowledged) => "  acknowledged",
            Some(ReachState::Pending) => "  pending",
            Some(ReachState::Rejected) => "  REJECTED",
        };
        let since = it.since.as_ref().map_or_else(String::new, |since| format!("  sent {since}"));
        let reason = it.reason.as_ref().map_or_else(String::new, |reason| format!("\n    {}", reason.trim()));
        format!("  {}{state}{since}{reason}", it.proxy)
    })));
    if !without_effect.is_empty() {
        text.push_str(&format!(
            "\nWithout effect in {}:\n",
            counted(*examined, "resource that was examined", "resources that were examined")
        ));
        text.push_str(&shortened(without_effect.iter().map(|field| format!("  {field}"))));
    }
    if !decisions.is_empty() {
        text.push_str(&format!("\nAgainst other objects:\n{}", decisions_text(decisions)));
    }
    text
}

fn shortened(lines: impl ExactSizeIterator<Item = String>) -> String {
    let left = lines.len().saturating_sub(SHOWN);
    let mut text: String = lines.take(SHOWN).map(|line| format!("{line}\n")).collect();
    if left > 0 {
        text.push_str(&format!("  and {left} more, see -o json\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_replica(name: &str, proxies: usize, without_effect: &[&str]) -> OfReplica<ObjectExplanation> {
        let value = ObjectExplanation {
            object: "VirtualService shop/cart".into(),
            at: None,
            in_use: true,
            notes: Vec::new(),
            resources: vec![ObjectReach { kind: "RDS".into(), name: "80".into(), proxies }],
            proxies: Vec::new(),
            without_effect: without_effect.iter().map(|field| (*field).to_owned()).collect(),
            examined: 1,
            decisions: Vec::new(),
        };
        OfReplica { replica: name.into(), value }
    }

    #[test]
    fn replicas_add_up_and_a_field_with_an_effect_anywhere_has_one() {
        let all =
            merged(vec![of_replica("a", 2, &["spec.http[1]", "spec.tls"]), of_replica("b", 3, &["spec.tls"])]).unwrap();
        assert_eq!(all.resources[0].proxies, 5);
        assert_eq!((all.without_effect, all.examined), (vec!["spec.tls".to_owned()], 2));
    }
}
