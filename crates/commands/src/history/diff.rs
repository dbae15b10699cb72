//! `meltemi diff`: what differs for a proxy between two pushes or times.

use admin::HistoryDifference;
use anyhow::Result;

use super::{ask, push_line};
use crate::explain::encoded;
use crate::{CommandOutcome, counted, plan, print};
use settings::args::{DiffArgs, Listing};

/// Pushes that are listed.
const PUSHES: usize = 10;

pub fn run(args: &DiffArgs) -> Result<CommandOutcome> {
    let mut page = format!("/debug/history/diff?proxyID={}&from={}", encoded(&args.proxy), encoded(&args.from));
    if let Some(to) = &args.to {
        page.push_str(&format!("&to={}", encoded(to)));
    }
    page.push_str(if args.full { "&full" } else { "" });
    let found: HistoryDifference = ask(&args.target, &page, &args.proxy)?;
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&found)?)),
        Listing::Text => print(&text(&found, args.full)),
    }
    let differs = !found.resources.is_empty();
    Ok(if args.check && differs { CommandOutcome::Found } else { CommandOutcome::Done })
}

fn text(found: &HistoryDifference, full: bool) -> String {
    let HistoryDifference { proxy, from, to, pushes, resources, more_resources, .. } = found;
    if resources.is_empty() {
        return format!("nothing differs for {proxy} between push {from} and push {to}\n");
    }
    let count = counted(resources.len() + more_resources, "resource differs", "resources differ");
    let mut text = format!("{count} for {proxy} between push {from} and push {to}\n");
    let hidden = if full { 0 } else { pushes.len().saturating_sub(PUSHES) };
    if hidden > 0 {
        text.push_str(&format!("  {hidden} pushes before these; --full shows them\n"));
    }
    for push in &pushes[hidden..] {
        text.push_str(&format!("  push {}  {}\n", push.push, push_line(push)));
    }
    text.push('\n');
    for resource in resources {
        plan::resource_text(&mut text, resource, full);
    }
    if *more_resources > 0 {
        text.push_str(&format!("  and {more_resources} more resources; --full shows them\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(resources: &serde_json::Value) -> HistoryDifference {
        let push = json!({"push": 41, "at": "2026-03-01T10:15:02.113Z", "cause": "VirtualService shop/cart", "objects": [], "more": 0});
        let whole = json!({"proxy": "web.shop", "from": 40, "to": 41, "connected": true, "pushes": [push], "resources": resources, "moreResources": 2});
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn pushes_come_before_resources() {
        let resource = json!({"type": "rds", "name": "80", "change": "replaced", "bytes": 9, "moreFields": 0, "objects": [],
            "fields": [{"path": "timeout", "old": "5s", "new": "10s"}]});
        let expected = "\
3 resources differ for web.shop between push 40 and push 41
  push 41  2026-03-01T10:15:02.113Z  VirtualService shop/cart

  ~ rds 80
      timeout: \"5s\" -> \"10s\"
  and 2 more resources; --full shows them
";
        assert_eq!(text(&found(&json!([resource])), false), expected);
        assert_eq!(text(&found(&json!([])), false), "nothing differs for web.shop between push 40 and push 41\n");
    }
}
