//! Banned words (xtask/words.toml): names of our own for what the field has a word for. Checked in identifiers, comments, strings,
//! documents and the names of files; recorded answers of others are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Finding;
use super::text::is_our_text;

const FILE: &str = "xtask/words.toml";

const WHY: &str =
    "if Envoy, xDS, Istio, Kubernetes, gRPC, HTTP/2 or Rust has a word, it is the word; readers search for it";

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vocabulary {
    #[serde(default)]
    banned: Vec<Banned>,
    #[serde(default)]
    exception: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Banned {
    /// All forms of the word, in lower case.
    words: Vec<String>,
    /// The field's word.
    say: String,
}

/// Where a banned word means something else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    word: String,
    /// A file or folder.
    #[serde(rename = "in")]
    place: PathBuf,
    /// Not read by the program, but nobody may leave it out.
    #[serde(rename = "why")]
    _why: String,
}

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Result<Vec<Finding>> {
    let text = std::fs::read_to_string(root.join(FILE)).context(FILE)?;
    let mut search = Search::new(toml::from_str(&text).context(FILE)?);
    for path in files.iter().filter(|path| is_our_text(path) && !path.starts_with(FILE)) {
        let text = std::fs::read_to_string(root.join(path)).with_context(|| path.display().to_string())?;
        search.read(path, &text);
    }
    Ok(search.finish())
}

struct Search {
    banned: BTreeMap<String, String>,
    exceptions: Vec<Exception>,
    /// Indexes of exceptions that some file needs.
    needed: BTreeSet<usize>,
    found: Vec<Finding>,
}

impl Search {
    fn new(vocabulary: Vocabulary) -> Search {
        let mut banned = BTreeMap::new();
        for entry in vocabulary.banned {
            banned.extend(entry.words.into_iter().map(|word| (word, entry.say.clone())));
        }
        Search { banned, exceptions: vocabulary.exception, needed: BTreeSet::new(), found: Vec::new() }
    }

    fn read(&mut self, path: &Path, text: &str) {
        self.line(path, 1, &path.to_string_lossy());
        for (number, line) in text.lines().enumerate() {
            self.line(path, number + 1, line);
        }
    }

    fn line(&mut self, path: &Path, line: usize, text: &str) {
        for word in words(text) {
            let Some(say) = self.banned.get(&word) else { continue };
            let exception = self.exceptions.iter().position(|it| it.word == word && path.starts_with(&it.place));
            if let Some(exception) = exception {
                self.needed.insert(exception);
                continue;
            }
            let fix = format!("say {say}; if the word means something else here, add an exception to {FILE}");
            let what = format!("the banned word `{word}`");
            self.found.push(Finding { file: path.to_owned(), line, what, why: WHY.to_owned(), fix });
        }
    }

    /// Also tells which exceptions nothing needs: such an exception would hide the next use of the word.
    fn finish(mut self) -> Vec<Finding> {
        let unneeded = self.exceptions.iter().enumerate().filter(|(at, _)| !self.needed.contains(at));
        self.found.extend(unneeded.map(|(_, exception)| Finding {
            file: FILE.into(),
            line: 1,
            what: format!("the exception for `{}` in {} is not needed", exception.word, exception.place.display()),
            why: "it would hide the next use of the word".into(),
            fix: "remove it".into(),
        }));
        self.found
    }
}

/// Words in lower case; an identifier is split at `_` and where a capital letter begins a word.
fn words(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in line.split(|c: char| !c.is_alphabetic()).filter(|part| !part.is_empty()) {
        let letters: Vec<char> = part.chars().collect();
        let mut word = String::new();
        for (at, letter) in letters.iter().enumerate() {
            let after_small = at > 0 && letters[at - 1].is_lowercase();
            let before_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
            if letter.is_uppercase() && !word.is_empty() && (after_small || before_small) {
                found.push(std::mem::take(&mut word));
            }
            word.extend(letter.to_lowercase());
        }
        found.push(word);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "[[banned]]\nwords = [\"bell\", \"bells\"]\nsay = \"notifier\"\n\
        [[exception]]\nword = \"bell\"\nin = \"docs/sound.md\"\nwhy = \"a real one\"\n";

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut search = Search::new(toml::from_str(RULES).unwrap());
        search.exceptions.retain(|exception| path.starts_with(&*exception.place.to_string_lossy()));
        search.read(Path::new(path), text);
        search.finish().into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn identifiers_are_split_into_words() {
        assert_eq!(words("ring_bell(HTTPBell, bellRing2)"), ["ring", "bell", "http", "bell", "bell", "ring"]);
        assert_eq!(words("a /// Doc-comment's TLS"), ["a", "doc", "comment", "s", "tls"]);
    }

    #[test]
    fn a_banned_word_is_found_in_code_comments_and_file_names() {
        for text in ["fn ring_bell() {}", "struct Bell;", "// rings the bells", "info!(\"bell\")"] {
            assert_eq!(found("a.rs", text).len(), 1, "{text}");
        }
        assert_eq!(found("crates/x/src/bell.rs", "\n"), [(1, "the banned word `bell`".to_owned())]);
    }

    #[test]
    fn longer_words_are_other_words() {
        assert!(found("a.rs", "label, bellow, rebelled, LABEL_BELLOW").is_empty());
    }

    #[test]
    fn an_exception_holds_in_its_place_and_must_be_needed() {
        assert!(found("docs/sound.md", "the bell\n").is_empty());
        assert_eq!(
            found("docs/sound.md", "silence\n"),
            [(1, "the exception for `bell` in docs/sound.md is not needed".to_owned())]
        );
        assert_eq!(found("docs/sound.md", "the bell\nthe bells\n"), [(2, "the banned word `bells`".to_owned())]);
    }
}
