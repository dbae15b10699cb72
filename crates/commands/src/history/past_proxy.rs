//! What a proxy had, for `--at` of `explain proxy` and `render`.

use admin::{PastConfig, PastResourceReport};
use anyhow::Result;
use provenance::ProxyExplanation;

use super::{ask, push_line};
use crate::explain::encoded;
use settings::args::ServerArgs;

/// `types`: short names; empty: all.
pub(crate) fn past_config(target: &ServerArgs, proxy: &str, at: &str, types: &[String]) -> Result<PastConfig> {
    let (id, at, types) = (encoded(proxy), encoded(at), encoded(&types.join(",")));
    ask(target, &format!("/debug/history/config?proxyID={id}&at={at}&types={types}"), proxy)
}

/// Without decisions.
pub(crate) fn past_explanation(target: &ServerArgs, proxy: &str, at: &str) -> Result<ProxyExplanation> {
    ask(target, &format!("/debug/explain/proxy?proxyID={}&at={}", encoded(proxy), encoded(at)), proxy)
}

/// The report, and its text.
pub(crate) fn past_resource(
    target: &ServerArgs,
    proxy: &str,
    at: &str,
    resource: &str,
) -> Result<(PastResourceReport, String)> {
    let (id, at, named) = (encoded(proxy), encoded(at), encoded(resource));
    let report: PastResourceReport =
        ask(target, &format!("/debug/explain/proxy?proxyID={id}&at={at}&resource={named}"), proxy)?;
    let text = text(&report);
    Ok((report, text))
}

fn text(report: &PastResourceReport) -> String {
    let PastResourceReport { proxy, kind, name, push, bytes, made_from, brought_by, replaced_by, .. } = report;
    let mut text = format!("{kind} {name} of {proxy} after push {push}, {bytes} bytes\n");
    let brought = brought_by.as_ref().map_or_else(
        || "as old as the history".to_owned(),
        |push| format!("brought by push {}  {}", push.push, push_line(push)),
    );
    text.push_str(&format!("  {brought}\n"));
    if let Some(push) = replaced_by {
        text.push_str(&format!("  replaced by push {}  {}\n", push.push, push_line(push)));
    }
    text.push_str("\nMade from:\n");
    if made_from.is_empty() {
        text.push_str("  nothing: it is built in (default)\n");
    }
    made_from.iter().for_each(|object| text.push_str(&format!("  {object}\n")));
    text
}
