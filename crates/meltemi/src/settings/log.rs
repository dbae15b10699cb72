//! What is logged: istiod's `SCOPE:LEVEL,..`, and the filter of `tracing` that says the same.

use anyhow::{Result, bail};

/// Name, what it is about, and the crate that writes it; empty: all that no other scope names.
pub(crate) const SCOPES: [(&str, &str, &str); 4] = [
    ("default", "everything that has no scope of its own", ""),
    ("ads", "streams of proxies", "xds"),
    ("file", "objects that are read", "sources"),
    ("serverca", "certificates", "ca"),
];

const LEVELS: [&str; 5] = ["none", "error", "warn", "info", "debug"];

/// By scope, in the order of `SCOPES`. `None`: as the default says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Levels {
    default: &'static str,
    scopes: [Option<&'static str>; 3],
}

impl Default for Levels {
    fn default() -> Levels {
        Levels { default: "info", scopes: [None; 3] }
    }
}

impl Levels {
    /// Scopes that are not ours are told in `unused`.
    pub(super) fn parse(text: &str, unused: &mut Vec<String>) -> Result<Levels> {
        let mut levels = Levels::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (scope, level) = entry.split_once(':').unwrap_or(("default", entry));
            if self::level(level).is_none() {
                bail!("--log_output_level {entry:?}: the levels are none, error, warn, info, debug");
            }
            match levels.with(scope, level) {
                Some(next) => levels = next,
                None => unused.push(format!(
                    "--log_output_level: there is no scope {scope:?} here; the scopes are default, ads, delta, file, serverca"
                )),
            }
        }
        Ok(levels)
    }

    /// `None`: there is no such scope or level.
    pub(crate) fn with(&self, scope: &str, level: &str) -> Option<Levels> {
        let level = self::level(level)?;
        let mut next = self.clone();
        match scope {
            "default" | "all" => next.default = level,
            "ads" | "delta" => next.scopes[0] = Some(level),
            "file" => next.scopes[1] = Some(level),
            "serverca" => next.scopes[2] = Some(level),
            _ => return None,
        }
        Some(next)
    }

    pub(crate) fn of(&self, scope: &str) -> &'static str {
        let at = SCOPES.iter().position(|(name, _, _)| *name == scope).unwrap_or_default();
        at.checked_sub(1).and_then(|at| self.scopes[at]).unwrap_or(self.default)
    }

    pub(crate) fn filter(&self) -> String {
        // What the HTTP library says at debug level is of no use to an operator.
        let quiet = ["h2", "hyper", "hyper_util", "kube_client", "mio"].map(|name| format!("{name}=error"));
        let own = SCOPES[1..]
            .iter()
            .zip(self.scopes)
            .filter_map(|((_, _, of), level)| Some(format!("{of}={}", word(level?))));
        let directives: Vec<String> = quiet.into_iter().chain(own).collect();
        format!("{},{}", word(self.default), directives.join(","))
    }
}

fn level(text: &str) -> Option<&'static str> {
    let text = if text == "fatal" { "error" } else { text };
    LEVELS.into_iter().find(|level| *level == text)
}

/// In the words of `tracing`.
fn word(level: &str) -> &str {
    if level == "none" { "off" } else { level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_scopes_become_directives() {
        let mut unused = Vec::new();
        let levels = Levels::parse("all:warn,ads:debug,wasm:info", &mut unused).unwrap();
        let filter = levels.filter();
        assert!(filter.starts_with("warn,") && filter.ends_with("xds=debug"), "{filter}");
        assert_eq!((levels.of("ads"), levels.of("file"), unused.len()), ("debug", "warn", 1));
        assert!(Levels::parse("debug", &mut unused).unwrap().filter().starts_with("debug,"));
        assert!(levels.with("ads", "loud").is_none() && levels.with("wasm", "info").is_none());
        assert_eq!(levels.with("default", "none").map(|levels| levels.of("default")), Some("none"));
    }
}
