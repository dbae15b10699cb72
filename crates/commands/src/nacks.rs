//! `meltemi nacks`: what proxies reject at the moment, with the objects and fields to blame.

use admin::{HoldStatus, NackStatus};
use anyhow::Result;
use serde_json::Value;

use super::replica_pages::{OfReplica, ReplicaPages};
use super::{CommandOutcome, client, print};
use settings::args::{Listing, NacksArgs};

/// Proxies that are named in one line.
const SHOWN: usize = 5;

/// Ends with 1 if there is a rejection.
pub fn run(args: &NacksArgs) -> Result<CommandOutcome> {
    let replicas = client::run(async {
        let pages = ReplicaPages::find(&args.target).await?;
        pages.read::<Vec<NackStatus>>("/debug/nacks", "a list of rejections").await
    })?;
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&document(&replicas)?)?)),
        Listing::Text => print(&text(&replicas)),
    }
    let none = replicas.iter().all(|it| it.value.is_empty());
    Ok(if none { CommandOutcome::Done } else { CommandOutcome::Found })
}

/// One list; where there are several replicas each rejection names its own.
fn document(replicas: &[OfReplica<Vec<NackStatus>>]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for OfReplica { replica, value } in replicas {
        for nack in value {
            let mut shown = serde_json::to_value(nack)?;
            if !replica.is_empty() {
                shown["replica"] = replica.as_str().into();
            }
            all.push(shown);
        }
    }
    Ok(all)
}

fn text(replicas: &[OfReplica<Vec<NackStatus>>]) -> String {
    let nacks: Vec<&NackStatus> = replicas.iter().flat_map(|it| &it.value).collect();
    if nacks.is_empty() {
        return "no proxy rejects anything\n".to_owned();
    }
    nacks.into_iter().map(nack_text).collect::<Vec<_>>().join("\n")
}

fn nack_text(NackStatus { kind, reason, proxies, since, resources, held }: &NackStatus) -> String {
    let mut named = proxies.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if proxies.len() > SHOWN {
        named.push_str(&format!(" and {} more", proxies.len() - SHOWN));
    }
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = format!("{kind} rejected by {named} since {since}\n  {reason}\n");
    for resource in resources {
        let parts = if resource.parts.is_empty() { String::new() } else { format!(": {}", resource.parts.join(", ")) };
        text.push_str(&format!("  {}{parts}\n", resource.name));
        for object in &resource.objects {
            let at = object.at.as_ref().map_or_else(String::new, |at| format!(" ({at})"));
            text.push_str(&format!("    {}{at}\n", object.object));
            object.fields.iter().for_each(|field| text.push_str(&format!("      {field}\n")));
        }
    }
    for HoldStatus { name, from, instead, until } in held.iter().take(SHOWN) {
        text.push_str(&format!("  held back until {until} from {from}: {name}; sent instead: {instead}\n"));
    }
    if held.len() > SHOWN {
        text.push_str(&format!("  and {} more are held back\n", held.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {
    use provenance::{BlamedObject, BlamedResource};

    use super::*;

    #[test]
    fn a_rejection_names_proxies_resource_object_and_field() {
        let object = BlamedObject {
            object: "EnvoyFilter shop/bad".into(),
            at: None,
            fields: vec!["spec.configPatches[0].patch.value".into()],
        };
        let resource = BlamedResource {
            name: "virtualInbound".into(),
            parts: vec!["filterChains[a]".into()],
            objects: vec![object],
        };
        let nack = NackStatus {
            kind: "LDS".into(),
            reason: "it is\n bad".into(),
            proxies: vec!["cart-1.shop".into()],
            since: "2026-01-01T00:00:00Z".into(),
            resources: vec![resource],
            held: vec![HoldStatus {
                name: "virtualInbound".into(),
                from: "all of its class".into(),
                instead: "the last good version".into(),
                until: "2026-01-01T00:10:00Z".into(),
            }],
        };
        let of = |value| [OfReplica { replica: "r".into(), value }];
        let shown = text(&of(vec![nack.clone()]));
        for wanted in [
            "LDS rejected by cart-1.shop",
            "it is bad",
            "virtualInbound: filterChains[a]",
            "EnvoyFilter shop/bad\n      spec.configPatches[0]",
            "held back until 2026-01-01T00:10:00Z from all of its class: virtualInbound; sent instead: the last good version",
        ] {
            assert!(shown.contains(wanted), "{shown}");
        }
        assert_eq!(document(&of(vec![nack])).unwrap()[0]["replica"], "r");
        assert!(text(&of(Vec::new())).contains("no proxy"));
    }
}
