//! `cargo xtask check`: what must hold before a change is worth a test run.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::{progress, project, tidy};

pub(crate) fn run() -> Result<()> {
    eprintln!("check:");
    progress::step("cargo fmt", &mut project::cargo(["fmt", "--all", "--check"]))?;
    progress::own_step("tidy", tidy::run)?;
    let mut clippy = project::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    progress::step("cargo clippy", &mut clippy)?;
    deny()
}

/// cargo-deny takes minutes to build, so it is used where it is and not required; tidy checks the licences everywhere.
fn deny() -> Result<()> {
    let asked = Command::new("cargo-deny").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !asked.is_ok_and(|status| status.success()) {
        eprintln!("  SKIPPED cargo-deny: not installed (licences were checked by tidy; bans and sources were not).");
        eprintln!("          To run it: cargo install --locked cargo-deny");
        return Ok(());
    }
    progress::step("cargo deny", &mut project::cargo(["deny", "check", "licenses", "bans", "sources"]))
}
