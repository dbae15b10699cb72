//! The trust domain of the mesh with its aliases: principals of policies apply to all of them.

use std::collections::BTreeSet;

/// The trust domain, then its aliases.
#[derive(Debug, Default)]
pub(super) struct TrustDomains(Vec<String>);

/// In principals it means the mesh's own trust domain, whatever its name.
const MESH_DOMAIN: &str = "cluster.local";

impl TrustDomains {
    pub(super) fn new(domain: &str, aliases: &[String]) -> Self {
        Self(std::iter::once(domain).chain(aliases.iter().map(String::as_str)).map(str::to_owned).collect())
    }

    /// Each principal with every alias of its trust domain; one of a foreign or of any domain stays as it is.
    pub(super) fn principals(&self, principals: &[String]) -> Vec<String> {
        principals.iter().flat_map(|principal| self.with_domain_aliases(principal)).collect()
    }

    pub(super) fn with_aliases(&self, domains: &[String]) -> Vec<String> {
        let names = |domain: &String| {
            if self.0.contains(domain) { self.0.clone() } else { vec![domain.clone()] }
        };
        let mut seen = BTreeSet::new();
        domains.iter().flat_map(names).filter(|name| seen.insert(name.clone())).collect()
    }

    fn with_domain_aliases(&self, principal: &str) -> Vec<String> {
        let as_is = vec![principal.to_owned()];
        let parts: Vec<&str> = principal.split('/').collect();
        let [domain, _, _, _, _] = parts[..] else { return as_is };
        if domain == "*" || (domain != MESH_DOMAIN && !self.0.iter().any(|name| domains_match(domain, name))) {
            return as_is;
        }
        let mut names: Vec<String> = Vec::new();
        for name in &self.0 {
            // A pattern such as `*-td` already covers `old-td` and `new-td`.
            let covered = matches_suffix(name, domain);
            let renamed = if covered { principal.to_owned() } else { format!("{name}/{}", parts[1..].join("/")) };
            if !names.contains(&renamed) {
                names.push(renamed);
            }
        }
        names
    }
}

/// Equal, or one is a pattern (`a*`, `*a`, `*`) that matches the other.
fn domains_match(domain: &str, name: &str) -> bool {
    domain == name
        || name == "*"
        || matches_prefix(domain, name)
        || matches_prefix(name, domain)
        || matches_suffix(domain, name)
        || matches_suffix(name, domain)
}

fn matches_prefix(text: &str, pattern: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|start| text.starts_with(start))
}

fn matches_suffix(text: &str, pattern: &str) -> bool {
    pattern.strip_prefix('*').is_some_and(|end| text.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domains(names: &[&str]) -> TrustDomains {
        let aliases: Vec<String> = names[1..].iter().map(ToString::to_string).collect();
        TrustDomains::new(names[0], &aliases)
    }

    fn check(names: &[&str], principals: &[&str], want: &[&str]) {
        let written: Vec<String> = principals.iter().map(ToString::to_string).collect();
        assert_eq!(domains(names).principals(&written), want, "{names:?} {principals:?}");
    }

    #[test]
    fn a_principal_of_the_mesh_has_every_name() {
        check(&["new", "old"], &["old/ns/a/sa/b"], &["new/ns/a/sa/b", "old/ns/a/sa/b"]);
        check(&["new", "old"], &["cluster.local/ns/a/sa/b"], &["new/ns/a/sa/b", "old/ns/a/sa/b"]);
        check(&["only"], &["cluster.local/ns/a/sa/b"], &["only/ns/a/sa/b"]);
    }

    #[test]
    fn a_foreign_or_open_principal_stays_as_it_is() {
        for principal in ["other/ns/a/sa/b", "*/ns/a/sa/b", "*sa/b", "*", "/ns/a/sa/b", "sa/b", "old/ns/a*"] {
            check(&["new", "old"], &[principal], &[principal]);
        }
    }

    #[test]
    fn a_pattern_that_covers_an_alias_is_listed_once() {
        check(&["new-td", "old-td"], &["*-td/ns/a/sa/b"], &["*-td/ns/a/sa/b"]);
        check(
            &["new", "x-td", "cluster.local"],
            &["*-td/ns/a/sa/b"],
            &["new/ns/a/sa/b", "*-td/ns/a/sa/b", "cluster.local/ns/a/sa/b"],
        );
    }

    #[test]
    fn a_domain_has_its_aliases_once() {
        let written = ["old", "new", "other"].map(str::to_owned);
        assert_eq!(domains(&["new", "old"]).with_aliases(&written), ["new", "old", "other"]);
    }
}
