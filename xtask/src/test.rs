//! `cargo xtask test`: everything that CI runs, and at the end what ran.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::progress::{self, elapsed};
use crate::{check, cluster_tests, console, demo, project, setup};

pub(crate) fn run() -> Result<()> {
    let start = Instant::now();
    let tools = setup::tools()?;
    setup::api_server();
    setup::chart_tools(&tools);
    setup::istioctl();
    setup::agent();
    setup::h2spec();
    let mut failures = Vec::new();
    let mut stage = |name: &'static str, outcome: Result<()>| match outcome {
        Ok(()) => "ok",
        Err(error) => {
            eprintln!("error: {name}: {error:#}");
            failures.push(name);
            "FAILED"
        }
    };
    let checked = stage("check", check::run());
    let mut results = Results::default();
    let mut notices = Notices::default();
    let tested = stage("tests", tests(&mut results, &mut notices));
    let mut noded = "FAILED".to_owned();
    stage("real node", real_node().map(|outcome| noded = outcome));
    let complete = stage("completeness", notices.complete());
    let modelled = stage("loom", loom());
    let shown = stage("demo", demo::check(project::tested_meltemi()));
    let browsed = stage("console", console::test(&project::tested_meltemi()));

    println!("\nsummary");
    let line = |what: &str, text: &dyn Display| println!("  {what:<12} {text}");
    let Results { passed, failed, ignored, .. } = results;
    line("check", &checked);
    line("tests", &format!("{tested}: {passed} passed, {failed} failed, {ignored} ignored"));
    for (what, count) in &notices.counts {
        line(what, count);
    }
    line("loom", &modelled);
    line("demo", &shown);
    line("console", &browsed);
    line("real node", &noded);
    line("skipped", &format!("{complete}: {}", notices.skipped.len()));
    notices.skipped.iter().for_each(|reason| line("", reason));
    line("time", &elapsed(start));
    match failures[..] {
        [] => Ok(()),
        _ => bail!("failed: {}", failures.join(", ")),
    }
}

/// Where one can be started at once: to build its programs takes five minutes of processor time. Not on CI, whose time is used up by the other
/// tests. The summary says that it did not run, and why.
fn real_node() -> Result<String> {
    let reason = if project::is_ci() { Some("CI has no time for it".to_owned()) } else { cluster_tests::unready()? };
    match reason {
        None => cluster_tests::part().map(|()| "ok".to_owned()),
        Some(reason) => Ok(format!("NOT RUN: {reason}; all of it: cargo xtask test --cluster")),
    }
}

/// The loom model of the ready queue in `http2`. All packages are compiled for `--cfg loom`, so it has a target folder of its own.
fn loom() -> Result<()> {
    let mut command = project::cargo(["test", "--package", "http2", "--lib", "ready_queue::model"]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom").trim());
    command.env("CARGO_TARGET_DIR", project::target().join("loom"));
    progress::step("loom model of the ready queue", &mut command)
}

/// Test programs that mostly wait: for API servers, leases and certificates that expire. They run beside the others, which takes a quarter off the whole.
const WAITING: [&str; 2] = ["identity", "kube"];

fn tests(results: &mut Results, notices: &mut Notices) -> Result<()> {
    eprintln!("tests:");
    // Named, since there are no tests in comments and looking for them takes longer than some tests.
    let all = ["--lib", "--bins", "--tests"];
    cargo_test(&[&all[..], &["--no-run"]].concat(), &mut Results::default(), &mut Notices::default())?;
    let others = test_targets()?.into_iter().filter(|name| !WAITING.contains(&name.as_str()));
    let others: Vec<String> = others.flat_map(|name| ["--test".to_owned(), name]).collect();
    let computing: Vec<&str> = ["--lib", "--bins"].into_iter().chain(others.iter().map(String::as_str)).collect();
    let waiting = WAITING.map(|name| ["--test", name]).concat();
    let (mut more_results, mut more_notices) = (Results::default(), Notices::default());
    let (waited, computed) = thread::scope(|scope| {
        let waited = scope.spawn(|| cargo_test(&waiting, &mut more_results, &mut more_notices));
        let computed = cargo_test(&computing, results, notices);
        (waited.join().expect("only runs a command"), computed)
    });
    results.add(&more_results);
    notices.add(more_notices);
    waited.and(computed)
}

/// The names of all integration tests.
fn test_targets() -> Result<BTreeSet<String>> {
    let output = project::cargo(["metadata", "--no-deps", "--format-version=1"]).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read the output of cargo metadata")?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    Ok(targets.filter(|target| target.kind.iter().any(|kind| kind == "test")).map(|target| target.name).collect())
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

fn cargo_test(args: &[&str], results: &mut Results, notices: &mut Notices) -> Result<()> {
    let mut command = project::cargo(["test", "--workspace", "--no-fail-fast"]);
    command.args(args).env("MELTEMI_BIN", project::tested_meltemi());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take().expect("piped above"), child.stderr.take().expect("piped above"));
    let listener = thread::spawn(move || listen(stderr));
    for line in BufReader::new(stdout).lines() {
        results.read(&line.context("read the output of cargo test")?);
    }
    *notices = listener.join().expect("only reads and prints");
    let status = child.wait()?;
    results.print_rest();
    if !status.success() {
        bail!("cargo test: {status}, {} tests failed", results.failed);
    }
    Ok(())
}

/// What cargo and the tests say beside the results. All of it is shown, but a build of hundreds of packages in short.
fn listen(stderr: impl Read) -> Notices {
    let mut notices = Notices::default();
    let mut compiled = 0;
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if line.trim_start().starts_with("Compiling") {
            compiled += 1;
            if compiled % 50 == 1 {
                eprintln!("  {} (package {compiled})", line.trim());
            }
        } else if !line.trim_start().starts_with("Executable") {
            eprintln!("  {}", line.trim_end());
            notices.read(&line);
        }
    }
    notices
}

/// Lines that testkit writes past the harness: how much of the corpus ran, and what did not.
#[derive(Default)]
struct Notices {
    /// What was counted, and how much of it.
    counts: Vec<(String, String)>,
    skipped: Vec<String>,
}

impl Notices {
    fn add(&mut self, others: Notices) {
        self.counts.extend(others.counts);
        self.skipped.extend(others.skipped);
    }

    fn read(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("SKIPPED: ") {
            self.skipped.push(reason.to_owned());
        } else if let Some((what @ ("parity" | "envoy loads" | "traffic"), count)) = line.split_once(": ") {
            self.counts.push((what.to_owned(), count.to_owned()));
        }
    }

    /// On CI all must have run; a corpus that nobody counted did not run anywhere.
    fn complete(&self) -> Result<()> {
        let ran = |what: &str| self.counts.iter().any(|(counted, _)| counted == what);
        ensure!(ran("parity"), "the parity corpus did not run");
        if project::is_ci() {
            ensure!(self.skipped.is_empty(), "{} tests did not run, and on CI all must", self.skipped.len());
            ensure!(ran("envoy loads"), "no Envoy was loaded");
        }
        Ok(())
    }
}

/// Result lines of the test programs, added up.
#[derive(Default)]
struct Results {
    passed: usize,
    failed: usize,
    ignored: usize,
    /// The output of the test program that runs now; shown only if it fails.
    open: Vec<String>,
}

impl Results {
    fn add(&mut self, others: &Results) {
        self.passed += others.passed;
        self.failed += others.failed;
        self.ignored += others.ignored;
    }

    fn read(&mut self, line: &str) {
        self.open.push(line.to_owned());
        if let Some(result) = line.strip_prefix("test result: ") {
            self.finish(result);
        }
    }

    /// `ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s`
    fn finish(&mut self, result: &str) {
        let count = |what: &str| {
            let parts = result.split(['.', ';']).map(str::trim);
            parts.filter_map(|part| part.strip_suffix(what)).find_map(|n| n.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        self.passed += count("passed");
        self.failed += count("failed");
        self.ignored += count("ignored");
        if !result.starts_with("ok") {
            self.open.iter().for_each(|line| eprintln!("{line}"));
        } else if count("passed") > 0 {
            eprintln!("    {result}");
        }
        self.open.clear();
    }

    /// A test program that died has no result line, and the end of its output matters most.
    fn print_rest(&mut self) {
        self.open.drain(..).for_each(|line| eprintln!("{line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_added_up() {
        let mut results = Results::default();
        for line in [
            "running 2 tests",
            "test a ... ok",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s",
            "test result: FAILED. 1 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.03s",
        ] {
            results.read(line);
        }
        assert_eq!((results.passed, results.failed, results.ignored), (3, 3, 1));
    }

    #[test]
    fn a_corpus_that_did_not_run_is_noticed() {
        let mut notices = Notices::default();
        notices.read("SKIPPED: loading parity cases into Envoys: no root");
        assert!(notices.complete().is_err());
        notices.read("parity: 40 cases equal, 900 resources");
        notices.read("envoy loads: 52 (30.1 s)");
        assert_eq!(notices.counts[1], ("envoy loads".to_owned(), "52 (30.1 s)".to_owned()));
        assert_eq!(notices.skipped, ["loading parity cases into Envoys: no root"]);
    }
}
