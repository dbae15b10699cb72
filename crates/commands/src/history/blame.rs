//! `meltemi blame`: which push brought each line of a resource.

use admin::ResourceBlame;
use anyhow::Result;

use super::{ask, push_line};
use crate::explain::encoded;
use crate::{CommandOutcome, counted, print};
use settings::args::{BlameArgs, Listing};

pub fn run(args: &BlameArgs) -> Result<CommandOutcome> {
    let (proxy, resource) = (encoded(&args.proxy), encoded(&args.resource));
    let page = format!("/debug/history/blame?proxyID={proxy}&resource={resource}");
    let found: ResourceBlame = ask(&args.target, &page, &args.proxy)?;
    match args.output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&found)?)),
        Listing::Text => print(&text(&found)),
    }
    Ok(CommandOutcome::Done)
}

/// The pushes, then the lines with their numbers.
fn text(ResourceBlame { proxy, kind, name, versions, lines, .. }: &ResourceBlame) -> String {
    let number = |version: usize| match versions.get(version) {
        Some(Some(push)) => push.push.to_string(),
        _ => "-".to_owned(),
    };
    let width = (0..versions.len()).map(|version| number(version).len()).max().unwrap_or_default();
    let count = counted(versions.len(), "version", "versions");
    let mut text = format!("{kind} {name} of {proxy}: {count}\n");
    for (index, version) in versions.iter().enumerate().filter(|(index, _)| lines.iter().any(|it| it.version == *index))
    {
        let origin = version.as_ref().map_or_else(|| "as old as the history".to_owned(), push_line);
        text.push_str(&format!("  {:>width$}  {origin}\n", number(index)));
    }
    if lines.is_empty() {
        let last = versions.len().saturating_sub(1);
        let origin = versions.last().and_then(Option::as_ref).map_or_else(String::new, push_line);
        text.push_str(&format!("  {:>width$}  {origin}\n\nit is no more\n", number(last)));
        return text;
    }
    text.push('\n');
    for line in lines {
        text.push_str(&format!("{:>width$} | {}\n", number(line.version), line.text));
    }
    text
}

#[cfg(test)]
mod tests {
    use admin::{BlamedText, PushSummary};

    use super::*;

    #[test]
    fn each_line_has_the_number_of_its_push() {
        let push = |push, cause: &str| {
            let at = "2026-03-01T10:15:02.113Z".to_owned();
            Some(PushSummary { push, at, cause: cause.to_owned(), objects: Vec::new(), more: 0 })
        };
        let line = |version, text: &str| BlamedText { version, text: text.to_owned() };
        let blamed = ResourceBlame {
            proxy: "web.shop".into(),
            kind: "RDS".into(),
            name: "80".into(),
            connected: true,
            versions: vec![None, push(9, "Service shop/a"), push(41, "VirtualService shop/cart")],
            lines: vec![line(0, "{"), line(2, "  \"timeout\": \"10s\""), line(0, "}")],
        };
        let expected = "\
RDS 80 of web.shop: 3 versions
   -  as old as the history
  41  2026-03-01T10:15:02.113Z  VirtualService shop/cart

 - | {
41 |   \"timeout\": \"10s\"
 - | }
";
        assert_eq!(text(&blamed), expected);
        let gone = ResourceBlame { lines: Vec::new(), ..blamed };
        assert!(text(&gone).ends_with("  41  2026-03-01T10:15:02.113Z  VirtualService shop/cart\n\nit is no more\n"));
    }
}
