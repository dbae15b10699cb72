//! Which resources of a response a NACK is about, by its text.

use std::sync::Arc;

use crate::Resource;

/// The resources that are surely meant: those that the reason names as Envoy does, or the only one of the response.
pub(crate) fn culprits<'a>(reason: &str, resources: &'a [Arc<Resource>]) -> Vec<&'a Arc<Resource>> {
    if let [only] = resources {
        return vec![only];
    }
    resources.iter().filter(|resource| names_culprit(reason, &resource.name)).collect()
}

/// Whether the text holds the name as a whole word: `8080` does not mention `80`.
pub fn mentions_name(text: &str, name: &str) -> bool {
    mentions(text, name).next().is_some()
}

/// Whether the text blames the resource: Envoy writes `NAME: why`, or shows the message with its `name: "NAME"`. A port that occurs anywhere in
/// the text is no route of that name.
fn names_culprit(text: &str, name: &str) -> bool {
    mentions(text, name)
        .any(|(before, after)| after.starts_with(": ") || before.ends_with("name: \"") && after.starts_with('"'))
}

/// What is before and after the name, wherever it is a whole word.
fn mentions<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let part = |c: char| c.is_alphanumeric() || "|_-./".contains(c);
    let found = text.match_indices(name).filter(|_| !name.is_empty());
    found.map(|(at, _)| (&text[..at], &text[at + name.len()..])).filter(move |(before, after)| {
        !before.chars().next_back().is_some_and(part) && !after.chars().next().is_some_and(|c| part(c) && c != '.')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_culprit_is_named_as_envoy_names_it() {
        let listeners = "Error adding/updating listener(s) 0.0.0.0_80: script load error\n10.0.0.1_443: no filter";
        assert!(names_culprit(listeners, "0.0.0.0_80") && names_culprit(listeners, "10.0.0.1_443"));
        assert!(!names_culprit(listeners, "0.0.0.1_443"));
        assert!(names_culprit("value is required): name: \"80\"\nvirtual_hosts {", "80"));
        assert!(!names_culprit("duplicate domain a:80, or after 80 routes", "80"));
    }
}
