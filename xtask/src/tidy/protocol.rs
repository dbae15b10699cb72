//! The protocol of crate xds stays pure: no runtime, no sockets, no log, no metrics, no ambient clock. What a server needs of these is in
//! crates/xds/src/server.

use super::source::Source;
use super::{Finding, contains_word};

const FOLDER: &str = "crates/xds/src/protocol";

/// Each with what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("tokio", "move it to crates/xds/src/server; instants here are those of std"),
    ("http2", "move it to crates/xds/src/server"),
    ("tracing", "return what happened; crates/xds/src/server logs it"),
    ("prometheus", "return what happened; crates/xds/src/server counts it"),
    ("Instant::now", "take the time as an argument"),
    ("SystemTime::now", "take the time as an argument"),
    (".elapsed(", "take the time as an argument"),
    ("clock::now", "take the time as an argument"),
    ("async", "move it to crates/xds/src/server"),
    (".await", "move it to crates/xds/src/server"),
    ("std::net", "move it to crates/xds/src/server"),
    ("std::fs", "move it to crates/xds/src/server"),
];

/// Tests may read a clock.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let why =
        "the protocol is tested and read without a server: the same requests at the same times give the same responses";
    let mut found = Vec::new();
    let is_protocol = |source: &&Source| source.path.starts_with(FOLDER) && !source.path.ends_with("tests.rs");
    for source in sources.iter().filter(is_protocol) {
        for (number, line) in source.code.lines().take(source.body).enumerate() {
            let banned = BANNED.iter().filter(|(text, _)| contains_word(line, text));
            found.extend(banned.map(|(text, fix)| Finding {
                file: source.path.clone(),
                line: number + 1,
                what: format!("`{text}` in the protocol"),
                why: why.to_owned(),
                fix: (*fix).to_owned(),
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, code: &str) -> Vec<(usize, String)> {
        let findings = check(&[Source::new(path, code.into())]);
        findings.into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn runtime_clock_and_log_are_found_in_the_protocol() {
        let path = "crates/xds/src/protocol/watch.rs";
        for text in ["tokio", "http2", "tracing", "prometheus"] {
            assert_eq!(
                found(path, &format!("//! A file.\nuse {text}::x;\n")),
                [(2, format!("`{text}` in the protocol"))]
            );
        }
        assert_eq!(found(path, "let now = Instant::now();"), [(1, "`Instant::now` in the protocol".to_owned())]);
        assert_eq!(found(path, "let age = sent.elapsed();"), [(1, "`.elapsed(` in the protocol".to_owned())]);
        assert_eq!(found(path, "async fn f() {}"), [(1, "`async` in the protocol".to_owned())]);
    }

    #[test]
    fn comments_other_folders_and_the_type_instant_are_allowed() {
        let path = "crates/xds/src/protocol/watch.rs";
        assert_eq!(found(path, "// no tokio here\nfn at(now: Instant) {}\n"), []);
        assert_eq!(found("crates/xds/src/server/stream.rs", "use tokio::time::Instant;"), []);
        assert_eq!(found("crates/xds/src/protocol/watch/tests.rs", "let now = Instant::now();"), []);
    }
}
