//! The path by which the webhook is called: `/inject`, and pairs after it that reach the environment of the proxy.

use std::collections::BTreeMap;

pub(crate) const CLUSTER: &str = "ISTIO_META_CLUSTER_ID";
pub(crate) const NETWORK: &str = "ISTIO_META_NETWORK";

/// The variables that a path sets: `/inject/cluster/C/net/N/key/value`, and the old form `/inject/:ENV:cluster=C:ENV:net=N`.
pub(crate) fn variables(path: &str) -> BTreeMap<String, String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(rest) = path.splitn(3, '/').nth(2) else { return BTreeMap::new() };
    let pairs: Vec<(String, String)> = if rest.starts_with(":ENV:") {
        let pairs = rest.split(":ENV:").filter_map(|pair| pair.split_once('='));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    } else {
        let words: Vec<&str> = rest.split('/').collect();
        // A last key without a value is left out.
        let pairs = words.chunks_exact(2);
        pairs.map(|pair| (pair[0].to_owned(), pair[1].replace("--slash--", "/"))).collect()
    };
    let pairs = pairs.into_iter().filter(|(key, _)| !key.is_empty());
    pairs.map(|(key, value)| (variable(&key), value)).collect()
}

fn variable(key: &str) -> String {
    match key {
        "cluster" => CLUSTER.to_owned(),
        "net" => NETWORK.to_owned(),
        other => other.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(variables(path), expected, "{path}");
    }

    #[test]
    fn pairs_of_the_path_become_variables() {
        check("/inject", &[]);
        check("/inject/", &[]);
        check("/inject/cluster/a--slash--b/net/n/", &[(CLUSTER, "a/b"), (NETWORK, "n")]);
        check("/inject/foo/bar/odd", &[("FOO", "bar")]);
        check("/inject/:ENV:cluster=c:ENV:net=:ENV:=x:ENV:bare", &[(CLUSTER, "c"), (NETWORK, "")]);
    }
}
