//! Every claimed parity case in a live stock Envoy: all clusters and listeners active, none warming, nothing rejected.

use std::path::Path;
use std::process::Child;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use testkit::environment::{self, Rerun};
use testkit::envoy::{Bootstrap, Envoy, ServerAddress, problems};
use testkit::parity::{Case, CaseProxy, Corpus, ResourcesByType};
use testkit::server::{self, MeltemiServer};
use testkit::test_ca::TestCa;
use testkit::{netns, say, sds, skip};

/// One namespace each, since all proxies bind the same ports.
const WORKERS: usize = 2;

#[derive(Default, Serialize, Deserialize)]
struct Report {
    loads: usize,
    problems: Vec<String>,
}

#[test]
fn claimed_cases_become_active() {
    if let Some(inside) = environment::rerun() {
        return work(&inside).unwrap_or_else(|e| panic!("{e:#}"));
    }
    if let Some(why) = netns::missing() {
        return skip(&format!("loading parity cases into Envoys: {why}"));
    }
    if environment::envoy().is_none() {
        return skip("loading parity cases into Envoys: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    }
    let began = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let workers: Vec<Child> = (0..WORKERS).map(|part| worker(part, folder.path()).unwrap()).collect();
    let mut total = Report::default();
    for (part, mut worker) in workers.into_iter().enumerate() {
        assert!(worker.wait().unwrap().success(), "worker {part} failed, see above");
        let report: Report = serde_json::from_slice(&std::fs::read(report(folder.path(), part)).unwrap()).unwrap();
        total.loads += report.loads;
        total.problems.extend(report.problems);
    }
    say(&format!("envoy loads: {} ({:.1} s)", total.loads, began.elapsed().as_secs_f32()));
    assert!(total.problems.is_empty(), "{}", total.problems.join("\n"));
}

fn report(folder: &Path, part: usize) -> std::path::PathBuf {
    folder.join(part.to_string())
}

fn worker(part: usize, folder: &Path) -> Result<Child> {
    let mut command = netns::isolated_rerun("claimed_cases_become_active")?;
    command.env(environment::PART, part.to_string()).env(environment::REPORT, report(folder, part));
    Ok(command.env(environment::PROGRAM, server::program()?).stdout(std::process::Stdio::null()).spawn()?)
}

#[tokio::main]
async fn work(inside: &Rerun) -> Result<()> {
    let corpus = Corpus::open()?;
    let part: usize = inside.part.parse()?;
    let mut report = Report::default();
    let demanded = corpus.demanded();
    let loadable = demanded.iter().filter(|name| !corpus.not_loadable.contains_key(*name));
    let place = Place::new()?;
    for name in loadable.skip(part).step_by(WORKERS) {
        let case = corpus.case(name)?;
        report.loads += case.proxies.len();
        report.problems.extend(place.load(&case).await?.iter().map(|what| format!("{name}: {what}")));
    }
    std::fs::write(&inside.report, serde_json::to_vec(&report)?)?;
    Ok(())
}

/// What all loads of one worker share.
struct Place {
    folder: tempfile::TempDir,
    _secrets: sds::SdsStub,
}

impl Place {
    fn new() -> Result<Place> {
        let folder = tempfile::tempdir()?;
        let identity = "spiffe://cluster.local/ns/shop/sa/any";
        let authority = TestCa::new()?;
        let secrets = sds::SdsStub::start(&folder.path().join("sds"), &authority, identity)?;
        // What cases expect on a workload's own disk.
        netns::provide_in_etc(folder.path(), &[("certs/crl.pem", &authority.revocation_list()?)])?;
        Ok(Place { folder, _secrets: secrets })
    }

    /// What is wrong after each proxy of the case was given its configuration.
    async fn load(&self, case: &Case) -> Result<Vec<String>> {
        let objects = tempfile::tempdir()?;
        case.write_objects(objects.path())?;
        let server = MeltemiServer::start(objects.path())?;
        let expected = case.expected()?;
        let mut out = Vec::new();
        for proxy in &case.proxies {
            let found = self.load_one(&server, proxy, &expected[&proxy.name]).await;
            let found = found.unwrap_or_else(|e| vec![format!("{e:#}")]);
            out.extend(found.iter().map(|what| format!("{}: {what}", proxy.name)));
        }
        Ok(out)
    }

    async fn load_one(&self, server: &MeltemiServer, proxy: &CaseProxy, want: &ResourcesByType) -> Result<Vec<String>> {
        let binary = environment::envoy().context("no Envoy")?;
        let sds = self.folder.path().join("sds");
        let mut envoy = Envoy::start(&binary, &[], &Bootstrap { proxy, ads: ServerAddress::Tcp(server.address), sds })?;
        let live = envoy.wait_live().await;
        let rejected = envoy.stats(r"update_rejected$").await?;
        ensure!(!rejected.is_empty(), "Envoy has no such counters");
        let found = problems(want, &envoy.config_dump().await?, &rejected);
        if found.is_empty() {
            live?;
        } else {
            say(&envoy.log());
        }
        Ok(found)
    }
}
