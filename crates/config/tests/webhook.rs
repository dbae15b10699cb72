//! Agreement with istiod's webhook: every object of `tests/validation` is rejected, warned of or accepted as it was recorded.
//! Texts of diagnostics are tested beside the checks.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use config::diagnostic::Severity;
use config::object::parse_documents;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/validation")
}

/// `kind name` to verdict, from lines of three words; the rest of a line is a comment.
fn read_verdicts(file: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let words = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_else(|| panic!("{file}: {line:?} has too few words"));
        (format!("{} {}", next(), next()), next().to_owned())
    });
    words.collect()
}

/// Our verdict on each object of the corpus.
fn verdicts() -> BTreeMap<String, String> {
    let files = fs::read_dir(folder()).expect("the corpus is part of the project");
    let files = files.map(|entry| entry.expect("a folder can be listed").path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let texts = files.map(|file| fs::read_to_string(file).expect("an input is text"));
    let mut verdicts = BTreeMap::new();
    for text in texts {
        for document in text.split("\n---\n").skip(1) {
            verdicts.insert(format!("{} {}", word(document, "kind: "), word(document, "{name: ")), verdict(document));
        }
    }
    verdicts
}

fn word<'a>(document: &'a str, key: &str) -> &'a str {
    let (_, rest) = document.split_once(key).unwrap_or_else(|| panic!("no {key:?} in {document}"));
    rest.split(['\n', ',', '}']).next().unwrap_or(rest)
}

fn verdict(document: &str) -> String {
    let parsed = parse_documents("f", document);
    let has = |severity| parsed.diagnostics.iter().any(|diagnostic| diagnostic.severity == severity);
    let verdict = match (has(Severity::Error), has(Severity::Warning)) {
        (true, _) => "refused",
        (false, true) => "warned",
        (false, false) => "accepted",
    };
    verdict.to_owned()
}

#[test]
fn verdicts_are_those_of_istiod() {
    let (recorded, ours, differences) = (read_verdicts("verdicts.txt"), verdicts(), read_verdicts("differences.txt"));
    assert!(ours.len() > 700, "only {} objects were read", ours.len());
    let mut wrong = Vec::new();
    for (object, verdict) in &ours {
        let wanted = differences.get(object).or_else(|| recorded.get(object));
        if wanted != Some(verdict) {
            wrong.push(format!("{object}: {verdict}, istiod: {wanted:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), ours.len(), wrong.join("\n"));
    let stale: Vec<_> =
        recorded.keys().chain(differences.keys()).filter(|object| !ours.contains_key(*object)).collect();
    assert!(stale.is_empty(), "no such objects: {stale:?}");
    let redundant_differences: Vec<_> =
        differences.iter().filter(|(object, verdict)| recorded.get(*object) == Some(verdict)).collect();
    assert!(redundant_differences.is_empty(), "these do not differ: {redundant_differences:?}");
}
