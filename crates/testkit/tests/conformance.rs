//! HTTP/2 as the RFCs have it, output of the built program by h2spec, which knows nothing of it. What calls mean is tested elsewhere.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use testkit::server::MeltemiServer;
use testkit::{environment, say, skip};

#[test]
fn the_server_speaks_http2_as_the_rfcs_have_it() {
    let Some(h2spec) = environment::h2spec() else {
        return skip("conformance of HTTP/2: no h2spec (`cargo xtask setup`, or set MELTEMI_H2SPEC)");
    };
    run(&h2spec).unwrap_or_else(|e| panic!("{e:#}"));
}

fn run(h2spec: &std::path::Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut server = MeltemiServer::start(folder.path())?;
    let port = server.address.port().to_string();
    // A machine that is busy with something else may take seconds for an answer.
    let output = Command::new(h2spec).args(["-h", "127.0.0.1", "-p", &port, "-o", "10"]).output();
    let output = output.context("h2spec does not start")?;
    let report = String::from_utf8_lossy(&output.stdout);
    let sum = report.lines().rev().find(|line| line.contains(" tests, ")).unwrap_or("no sum").to_owned();
    ensure!(output.status.success() && sum.contains(" 0 skipped, 0 failed"), "{report}\n{}", server.log());
    say(&format!("HTTP/2: {sum}"));
    Ok(())
}
