//! Log levels in istiod's format, `SCOPE:LEVEL,..`, and as a filter of `tracing`.

use anyhow::{Result, bail};

/// Name, description, and the crate that logs under it; empty: all other crates.
pub(crate) const SCOPES: [(&str, &str, &str); 4] = [
    ("default", "everything that has no scope of its own", ""),
    ("ads", "streams of proxies", "xds"),
    ("file", "objects that are read", "sources"),
    ("serverca", "certificates", "ca"),
];

const LEVELS: [&str; 5] = ["none", "error", "warn", "info", "debug"];

/// By scope, in the order of `SCOPES`. `None`: the default level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevels {
    default: &'static str,
    scopes: [Option<&'static str>; 3],
}

impl Default for LogLevels {
    fn default() -> LogLevels {
        LogLevels { default: "info", scopes: [None; 3] }
    }
}

impl LogLevels {
    /// Warns of unknown scopes in `ignored`.
    pub fn parse(text: &str, ignored: &mut Vec<String>) -> Result<LogLevels> {
        let mut levels = LogLevels::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (scope, level) = entry.split_once(':').unwrap_or(("default", entry));
            if self::level(level).is_none() {
                bail!("--log_output_level {entry:?}: the levels are none, error, warn, info, debug");
            }
            match levels.with(scope, level) {
                Some(next) => levels = next,
                None => ignored.push(format!(
                    "--log_output_level: there is no scope {scope:?} here; the scopes are default, ads, delta, file, serverca"
                )),
            }
        }
        Ok(levels)
    }

    /// `None`: there is no such scope or level.
    pub(crate) fn with(&self, scope: &str, level: &str) -> Option<LogLevels> {
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

    pub(crate) fn level_of(&self, scope: &str) -> &'static str {
        let index = SCOPES.iter().position(|(name, _, _)| *name == scope).unwrap_or_default();
        index.checked_sub(1).and_then(|index| self.scopes[index]).unwrap_or(self.default)
    }

    pub fn filter(&self) -> String {
        // Debug lines of libraries are of no use to an operator.
        let libraries = ["h2", "hyper", "hyper_util", "kube_client", "mio"].map(|name| format!("{name}=error"));
        let scopes = SCOPES[1..]
            .iter()
            .zip(self.scopes)
            .filter_map(|((_, _, target), level)| Some(format!("{target}={}", tracing_level(level?))));
        let directives: Vec<String> = libraries.into_iter().chain(scopes).collect();
        format!("{},{}", tracing_level(self.default), directives.join(","))
    }
}

fn level(text: &str) -> Option<&'static str> {
    let text = if text == "fatal" { "error" } else { text };
    LEVELS.into_iter().find(|level| *level == text)
}

/// The level's name in `tracing`.
fn tracing_level(level: &str) -> &str {
    if level == "none" { "off" } else { level }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_scopes_become_directives() {
        let mut ignored = Vec::new();
        let levels = LogLevels::parse("all:warn,ads:debug,wasm:info", &mut ignored).unwrap();
        let filter = levels.filter();
        assert!(filter.starts_with("warn,") && filter.ends_with("xds=debug"), "{filter}");
        assert_eq!((levels.level_of("ads"), levels.level_of("file"), ignored.len()), ("debug", "warn", 1));
        assert!(LogLevels::parse("debug", &mut ignored).unwrap().filter().starts_with("debug,"));
        assert!(levels.with("ads", "loud").is_none() && levels.with("wasm", "info").is_none());
        assert_eq!(levels.with("default", "none").map(|levels| levels.level_of("default")), Some("none"));
    }
}
