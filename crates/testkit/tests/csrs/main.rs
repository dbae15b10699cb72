//! Signing requests that are passed to other signers, against the reader that most of these have: Go's crypto/x509. Whatever we pass on,
//! Go reads as the same key and the same name, and as nothing else.

mod corpus;
mod der;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine};
use ca::{Csr, CsrError, Identity, SignerRequest};
use corpus::{CART, Case};
use serde_json::Value;
use testkit::{environment, say, skip};

const SEED: u64 = 25;

fn passed_on(der: &[u8]) -> Result<SignerRequest, CsrError> {
    let identity: Identity = CART.parse().expect("a SPIFFE name");
    let body = BASE64_STANDARD.encode(der);
    Csr::parse(&format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n"))?
        .for_signer(&[identity])
}

#[test]
fn requests_of_agents_are_passed_on_and_unusual_ones_are_not() {
    for case in corpus::usual() {
        passed_on(&case.der).unwrap_or_else(|why| panic!("{}: {why}", case.name));
    }
    let unusual = corpus::unusual(SEED);
    assert!(unusual.len() > 700, "{}", unusual.len());
    // A mutation may undo itself; what it may be is compared with Go.
    let taken = unusual.iter().filter(|case| !case.name.starts_with("mutation") && passed_on(&case.der).is_ok());
    assert_eq!(taken.map(|case| &case.name).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn go_reads_what_is_passed_on_as_we_do() {
    let Some(go) = environment::go() else {
        return skip("signing requests as Go reads them: no Go (its package, or golang.org/dl)");
    };
    compared(&go).unwrap_or_else(|e| panic!("{e:#}"));
}

fn compared(go: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = built(go, folder.path())?;
    let mut cases = corpus::usual();
    let usual = cases.len();
    cases.extend(corpus::unusual(SEED));
    // What we would pass on, where we would; else what came.
    let ours: Vec<_> = cases.iter().map(|case| passed_on(&case.der).ok()).collect();
    let seen = seen_by(&program, &cases)?;
    let (mut both, mut only_go) = (0, 0);
    for ((case, ours), theirs) in cases.iter().zip(&ours).zip(&seen) {
        let rejected = !theirs["error"].as_str().unwrap_or_default().is_empty();
        match ours {
            Some(request) => {
                both += 1;
                same(request, case, theirs).with_context(|| format!("{}: {theirs}", case.name))?;
            }
            None if !rejected => only_go += 1,
            None => {}
        }
    }
    ensure!(both >= usual, "{both} of {usual} usual requests are accepted");
    ensure!(only_go > 50, "the corpus has few requests ({only_go}) that Go reads and we reject");
    say(&format!("signing requests: {} cases, {both} passed on, {only_go} rejected that Go reads", cases.len()));
    Ok(())
}

fn same(request: &SignerRequest, case: &Case, theirs: &Value) -> Result<()> {
    let list = |name: &str| theirs[name].as_array().cloned().unwrap_or_default();
    ensure!(theirs["error"] == "" && theirs["signature"] == "", "Go rejects it");
    ensure!(list("uris") == [request.identity.to_string()] && list("others").is_empty(), "other names");
    ensure!(list("extensions") == ["2.5.29.17"], "other extensions");
    ensure!(["", "O="].iter().any(|subject| theirs["subject"] == *subject), "a subject");
    let key = BASE64_STANDARD.decode(theirs["public_key"].as_str().unwrap_or_default())?;
    ensure!(request.public_key() == key, "another key");
    let pem: String = request.pem().lines().filter(|line| !line.starts_with("-----")).collect();
    ensure!(BASE64_STANDARD.decode(pem)? == case.der, "the signature is over other bytes");
    Ok(())
}

/// Nothing is fetched: it needs no module.
fn built(go: &Path, folder: &Path) -> Result<PathBuf> {
    let (source, program) =
        (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/csrs/requests.go"), folder.join("requests"));
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(source).current_dir(folder);
    build.envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod -buildvcs=false"), ("CGO_ENABLED", "0")]);
    let out = build.output().context("run go build")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    Ok(program)
}

fn seen_by(program: &Path, cases: &[Case]) -> Result<Vec<Value>> {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("piped")?;
    let lines: String = cases.iter().map(|case| BASE64_STANDARD.encode(&case.der) + "\n").collect();
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let out = child.wait_with_output()?;
    writer.join().ok().context("the writer ended")??;
    ensure!(out.status.success(), "the program of Go failed");
    let seen = String::from_utf8(out.stdout)?.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
    ensure!(seen.len() == cases.len(), "{} answers to {} requests", seen.len(), cases.len());
    Ok(seen)
}
