//! What a run found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value, json};
use testkit::parity::Comparison;

use crate::rate::{Rate, wilson};

/// Lines of one finding.
const SHOWN: usize = 8;

/// What became of a seed: the worst of its meshes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Equal,
    /// It differs only in what is listed.
    Open,
    /// A difference that does not stay.
    Unsteady,
    /// istiod ended, or never settled.
    Unanswered,
    Different,
}

impl Verdict {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Open => "open differences only",
            Verdict::Unsteady => "a difference that does not stay",
            Verdict::Unanswered => "istiod did not answer",
            Verdict::Different => "different",
        }
    }
}

#[derive(Default)]
pub(crate) struct Report {
    seeds: BTreeMap<Verdict, u32>,
    meshes: usize,
    equal_meshes: usize,
    resources: usize,
    equal_resources: usize,
    refused: usize,
    /// Equal meshes that showed something else until istiod was started again.
    pub(crate) history: usize,
    pub(crate) open: Reasons,
    pub(crate) findings: Vec<Finding>,
}

/// How many differences each reason explains.
#[derive(Default)]
pub(crate) struct Reasons(BTreeMap<String, usize>);

impl Reasons {
    pub(crate) fn extend_counts<'a>(&mut self, reasons: impl Iterator<Item = &'a str>) {
        for reason in reasons {
            *self.0.entry(reason.to_owned()).or_default() += 1;
        }
    }
}

/// A difference, on the smallest mesh that shows it.
#[derive(Serialize)]
pub(crate) struct Finding {
    pub(crate) seed: u64,
    pub(crate) round: usize,
    /// Meshes with a difference of these signatures.
    pub(crate) times: usize,
    pub(crate) signatures: Vec<String>,
    pub(crate) differences: Vec<String>,
    pub(crate) objects: Vec<Value>,
    pub(crate) proxies: Vec<Value>,
}

impl Report {
    pub(crate) fn count(&mut self, verdict: Verdict) {
        *self.seeds.entry(verdict).or_default() += 1;
    }

    pub(crate) fn compared(&mut self, found: &Comparison, refused: usize) {
        self.meshes += 1;
        self.equal_meshes += usize::from(found.equal());
        self.resources += found.total;
        self.equal_resources += found.same;
        self.refused += refused;
    }

    /// Whether a finding has this signature; it is counted there.
    pub(crate) fn count_again(&mut self, signature: &str) -> bool {
        let found = self.findings.iter_mut().find(|it| it.signatures.iter().any(|known| known == signature));
        if let Some(finding) = found {
            finding.times += 1;
            return true;
        }
        false
    }

    pub(crate) fn differs(&self) -> bool {
        self.of(Verdict::Different) > 0
    }

    fn of(&self, verdict: Verdict) -> u32 {
        self.seeds.get(&verdict).copied().unwrap_or_default()
    }

    /// Of seeds with an answer of istiod that does not change.
    fn rate(&self) -> Option<Rate> {
        let trials = [Verdict::Equal, Verdict::Open, Verdict::Different].map(|verdict| self.of(verdict));
        wilson(self.of(Verdict::Equal), trials.iter().sum())
    }

    pub(crate) fn json(&self) -> Value {
        let rate = self.rate();
        json!({
            "seeds": {
                "equal": self.of(Verdict::Equal), "open": self.of(Verdict::Open), "different": self.of(Verdict::Different),
                "unsteady": self.of(Verdict::Unsteady), "unanswered": self.of(Verdict::Unanswered),
            },
            "rate": rate.map(|it| it.rate), "interval95": rate.map(|it| [it.low, it.high]),
            "meshes": { "compared": self.meshes, "equal": self.equal_meshes },
            "resources": { "compared": self.resources, "equal": self.equal_resources },
            "refusedObjects": self.refused, "equalToNewIstiodOnly": self.history, "open": self.open.0, "findings": self.findings,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        for (reason, count) in &self.open.0 {
            writeln!(f, "open: {count} differences: {reason}")?;
        }
        if let Some(Rate { rate, low, high }) = self.rate() {
            let [rate, low, high] = [rate, low, high].map(|it| it * 100.0);
            let (equal, open, different) =
                (self.of(Verdict::Equal), self.of(Verdict::Open), self.of(Verdict::Different));
            writeln!(
                f,
                "seeds: {equal} of {} equal, {rate:.1} % (95 %: {low:.1} to {high:.1})",
                equal + open + different
            )?;
            writeln!(f, "       {open} with open differences only, {different} with others")?;
        }
        let (unsteady, unanswered) = (self.of(Verdict::Unsteady), self.of(Verdict::Unanswered));
        if unsteady + unanswered > 0 {
            writeln!(
                f,
                "       not counted: {unsteady} with a difference that does not stay, {unanswered} that istiod does not answer"
            )?;
        }
        writeln!(
            f,
            "meshes: {} of {} equal; resources: {} of {}",
            self.equal_meshes, self.meshes, self.equal_resources, self.resources
        )?;
        writeln!(
            f,
            "{} of the meshes are equal to what a new istiod sends, not to what one with a past does",
            self.history
        )
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, round {}, {} times:", self.seed, self.round, self.times)?;
        for line in self.differences.iter().take(SHOWN) {
            writeln!(f, "  {line}")?;
        }
        if let Some(more @ 1..) = self.differences.len().checked_sub(SHOWN) {
            writeln!(f, "  ... {more} more")?;
        }
        for object in &self.objects {
            write!(f, "---\n{}", document(object))?;
        }
        writeln!(f, "---\n# proxies.yaml\nproxies:")?;
        self.proxies.iter().try_for_each(|proxy| writeln!(f, "- {}", flow(proxy)))
    }
}

/// YAML as in the corpus: the fields of the object and of its spec have lines of their own.
fn document(object: &Value) -> String {
    let mut out = String::new();
    for (key, value) in object.as_object().into_iter().flatten() {
        let _ = match value.as_object().filter(|_| key == "spec") {
            Some(fields) if !fields.is_empty() => write!(out, "{key}:\n{}", lines(fields)),
            _ => writeln!(out, "{key}: {}", flow(value)),
        };
    }
    out
}

fn lines(fields: &Map<String, Value>) -> String {
    fields.iter().map(|(key, value)| format!("  {}: {}\n", text(key), flow(value))).collect()
}

fn flow(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{}: {}", text(key), flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(value) => text(value),
        other => other.to_string(),
    }
}

/// Bare where no reader could take it for anything else; else as JSON, which YAML contains.
fn text(value: &str) -> String {
    let bare = value.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    let word = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(
            value.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    if bare && word { value.to_owned() } else { Value::from(value).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_short_yaml() {
        let object = json!({ "kind": "ServiceEntry", "metadata": { "name": "a" }, "spec": { "hosts": ["*.b"], "x": { "1": true } } });
        let written = document(&object);
        assert_eq!(written, "kind: ServiceEntry\nmetadata: {name: a}\nspec:\n  hosts: [\"*.b\"]\n  x: {\"1\": true}\n");
        let read: Vec<_> = config::yaml::documents(&written, config::yaml::Scalars::Objects).collect();
        assert_eq!(read[0].as_ref().unwrap().to_json(), object);
    }

    #[test]
    fn only_answered_seeds_count() {
        let mut report = Report::default();
        for verdict in [Verdict::Equal, Verdict::Equal, Verdict::Open, Verdict::Unanswered, Verdict::Different] {
            report.count(verdict);
        }
        assert_eq!(report.rate().unwrap().rate, 0.5);
        let text = report.to_string();
        assert!(text.starts_with("seeds: 2 of 4 equal, 50.0 % (95 %: 15.0 to 85.0)\n"), "{text}");
        assert_eq!(report.json()["seeds"]["unanswered"], 1);
        assert!(report.differs());
    }
}
