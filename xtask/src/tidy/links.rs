//! Links in Markdown: a relative one leads to a file that exists, and with `#` to a heading of that page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use super::Finding;

/// Pages by their path, with their text.
type Pages = BTreeMap<PathBuf, String>;

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Finding>> {
    let mut pages = Pages::new();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        pages.insert(path.clone(), text);
    }
    let exists = |path: &Path| root.join(path).exists();
    Ok(pages.iter().flat_map(|(path, text)| broken(path, text, &pages, &exists)).collect())
}

fn broken(page: &Path, text: &str, pages: &Pages, exists: &dyn Fn(&Path) -> bool) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in outside_of_code(text) {
        for link in targets(line).filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.to_owned() } else { resolved(page, file) };
            let what = match pages.get(&target) {
                Some(text) if heading.is_empty() || headings(text).contains(heading) => continue,
                Some(_) => format!("{} has no heading `{heading}`", target.display()),
                None if exists(&target) => continue,
                None => format!("the link `{link}` leads to no file"),
            };
            let why = "a reader who follows it is lost".to_owned();
            let fix = "correct the link, or the heading that was renamed".to_owned();
            found.push(Finding { file: page.to_owned(), line: number + 1, what, why, fix });
        }
    }
    found
}

fn outside_of_code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// The targets of `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn resolved(page: &Path, file: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(file).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

/// The anchors of a page, as GitHub makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for title in outside_of_code(text)
        .filter_map(|(_, line)| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')))
    {
        let anchor = anchor(title);
        let again = (1..).map(|number| format!("{anchor}-{number}"));
        anchors.extend(std::iter::once(anchor.clone()).chain(again).find(|anchor| !anchors.contains(anchor)));
    }
    anchors
}

fn anchor(title: &str) -> String {
    let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let other = "# Other\n## `meltemi check PATH`\n## Twice\n## Twice\n```\n# no heading\n```\n";
        let pages = Pages::from([("docs/a.md".into(), text.to_owned()), ("README.md".into(), other.to_owned())]);
        let exists = |path: &Path| path == Path::new("docs/image.png");
        broken(Path::new("docs/a.md"), text, &pages, &exists).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        for fine in [
            "[a](../README.md) and [b](../README.md#meltemi-check-path)",
            "[twice](../README.md#twice-1)",
            "## Here\n[here](#here)",
            "![image](image.png)",
            "[elsewhere](https://example.com/x.md#y)",
            "```\n[code](nowhere.md)\n```",
        ] {
            assert_eq!(found(fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(found("[a](gone.md)"), ["the link `gone.md` leads to no file"]);
        assert_eq!(found("[a](../README.md#gone)"), ["README.md has no heading `gone`"]);
        assert_eq!(found("[a](../README.md#no-heading)"), ["README.md has no heading `no-heading`"]);
        assert_eq!(found("[a](#gone)"), ["docs/a.md has no heading `gone`"]);
    }
}
