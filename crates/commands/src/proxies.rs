//! `meltemi proxies`: the connected proxies and the sync state of each type, as a running server reports it.

use std::collections::BTreeSet;

use anyhow::Result;
use comfy_table::{Table, presets};
use serde_json::Value;

use super::client;
use super::replica_pages::{OfReplica, ReplicaPages};
use super::{CommandOutcome, print};
use admin::{ProxyStatus, SyncState};
use settings::args::{Listing, ProxiesArgs};

pub fn run(args: &ProxiesArgs) -> Result<CommandOutcome> {
    let proxies = client::run(async {
        let pages = ReplicaPages::find(&args.target).await?;
        pages.read::<Vec<ProxyStatus>>("/debug/proxies", "a list of proxies").await
    })?;
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&document(&proxies)?)?)),
        Listing::Text => print(&table(&proxies)),
    }
    Ok(CommandOutcome::Done)
}

/// One list; where there are several replicas each proxy names its own.
fn document(replicas: &[OfReplica<Vec<ProxyStatus>>]) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for OfReplica { replica, value } in replicas {
        for proxy in value {
            let mut shown = serde_json::to_value(proxy)?;
            if !replica.is_empty() {
                shown["replica"] = replica.as_str().into();
            }
            all.push(shown);
        }
    }
    Ok(all)
}

const TYPES: [&str; 4] = ["CDS", "LDS", "EDS", "RDS"];

/// With the column REPLICA where there are several.
fn table(replicas: &[OfReplica<Vec<ProxyStatus>>]) -> String {
    let streams: Vec<(&str, &ProxyStatus)> =
        replicas.iter().flat_map(|it| it.value.iter().map(|proxy| (&*it.replica, proxy))).collect();
    let several = replicas.len() > 1;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(
        ["PROXY", "NAMESPACE", "TYPE", "VERSION"].into_iter().chain(TYPES).chain(several.then_some("REPLICA")),
    );
    for (replica, proxy) in rows(&streams) {
        let state =
            |kind: &str| proxy.types.get(kind).map_or(SyncState::NotSent, |status| status.state).name().to_owned();
        let version = if proxy.version.is_empty() { "-" } else { &proxy.version };
        let named = [&proxy.proxy, &proxy.namespace, &proxy.proxy_type, version].map(str::to_owned);
        table.add_row(named.into_iter().chain(TYPES.into_iter().map(state)).chain(several.then(|| replica.to_owned())));
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim())).collect();
    let errors: Vec<String> = streams.iter().flat_map(|(_, proxy)| rejections(proxy)).collect();
    if !errors.is_empty() {
        text.push('\n');
        text.extend(errors);
    }
    text
}

/// An Envoy that gets its certificates from the server has streams for them beside that of its configuration: they have no row of their own.
fn rows<'a>(streams: &[(&'a str, &'a ProxyStatus)]) -> impl Iterator<Item = (&'a str, &'a ProxyStatus)> {
    let configures = |stream: &ProxyStatus| TYPES.iter().any(|kind| stream.types.contains_key(*kind));
    let configured: BTreeSet<_> = streams.iter().filter(|(_, it)| configures(it)).map(|(_, it)| &it.proxy).collect();
    let mut others = BTreeSet::new();
    let is_shown = move |(_, it): &(&'a str, &'a ProxyStatus)| {
        configures(it) || (!configured.contains(&it.proxy) && others.insert(&it.proxy))
    };
    streams.iter().copied().filter(is_shown)
}

fn rejections(proxy: &ProxyStatus) -> impl Iterator<Item = String> {
    proxy.types.iter().filter(|(_, status)| status.state == SyncState::Error).map(|(kind, status)| {
        let reason = status.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{} rejected {kind}: {reason}\n", proxy.proxy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::TypeStatus;
    use settings::args::ServerArgs;

    fn status(state: SyncState, reason: &str) -> TypeStatus {
        let (sent, acked, sent_at) = (String::new(), String::new(), String::new());
        TypeStatus { state, reason: reason.to_owned(), sent, acked, sent_at }
    }

    #[test]
    fn a_row_per_proxy_and_a_line_per_rejection() {
        let types = [
            ("CDS", status(SyncState::Synced, "")),
            ("LDS", status(SyncState::Error, "bad\n  listener")),
            ("EDS", status(SyncState::Stale, "")),
        ];
        let proxy = ProxyStatus {
            proxy: "cart-1.shop".into(),
            namespace: "shop".into(),
            proxy_type: "sidecar".into(),
            version: "1.32.0".into(),
            connection_id: "cart-1.shop-1".into(),
            address: "127.0.0.1:4711".into(),
            connected_at: String::new(),
            types: types.map(|(kind, status)| (kind.to_owned(), status)).into(),
        };
        let of = |replica: &str| OfReplica { replica: replica.to_owned(), value: vec![proxy.clone()] };
        let shown = table(&[of("")]);
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["PROXY", "NAMESPACE", "TYPE", "VERSION", "CDS", "LDS", "EDS", "RDS"]);
        assert_eq!(words[1], ["cart-1.shop", "shop", "sidecar", "1.32.0", "SYNCED", "ERROR", "STALE", "NOT", "SENT"]);
        assert_eq!(shown.lines().last(), Some("cart-1.shop rejected LDS: bad listener"));
        let shown = table(&[of("istiod-1"), of("istiod-2")]);
        let last: Vec<_> = shown.lines().take(3).filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(last, ["REPLICA", "istiod-1", "istiod-2"]);
        assert_eq!(document(&[of("istiod-1")]).unwrap()[0]["replica"], "istiod-1");
        assert!(document(&[of("")]).unwrap()[0]["replica"].is_null());
    }

    #[test]
    fn an_envoy_with_streams_for_its_certificates_is_one_row() {
        let stream = |proxy: &str, id: &str, kinds: &[&str]| ProxyStatus {
            proxy: proxy.into(),
            namespace: "shop".into(),
            proxy_type: "sidecar".into(),
            version: String::new(),
            connection_id: id.into(),
            address: String::new(),
            connected_at: String::new(),
            types: kinds.iter().map(|kind| ((*kind).to_owned(), status(SyncState::Synced, ""))).collect(),
        };
        let all = [
            stream("a.shop", "1", &["SDS"]),
            stream("a.shop", "2", &["CDS", "LDS"]),
            stream("a.shop", "3", &["SDS"]),
            stream("b.shop", "4", &["SDS"]),
            stream("b.shop", "5", &["SDS"]),
            stream("c.shop", "6", &["CDS"]),
            stream("c.shop", "7", &["CDS"]),
        ];
        let streams: Vec<_> = all.iter().map(|it| ("", it)).collect();
        let shown: Vec<_> = rows(&streams).map(|(_, it)| it.connection_id.as_str()).collect();
        assert_eq!(shown, ["2", "4", "6", "7"], "two configurations of one name are two proxies");
    }

    #[test]
    fn wrong_urls_are_named() {
        for server in ["127.0.0.1:15014", "https://x", "http://a b"] {
            let args =
                ProxiesArgs { target: ServerArgs { server: server.to_owned(), token: None }, output: Listing::Text };
            let error = format!("{:#}", run(&args).unwrap_err());
            assert!(error.contains("http://127.0.0.1:15014"), "{error}");
        }
    }
}
