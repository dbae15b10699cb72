//! `cargo xtask check`: what must hold before a change is worth a test run.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::{console, progress, project, tidy};

/// All of them, also after one has failed: a person wants the whole list.
pub(crate) fn run() -> Result<()> {
    eprintln!("check:");
    let mut fmt = project::cargo(["fmt", "--all", "--check", "--", "--color", "never"]);
    let mut clippy = project::cargo(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    let outcomes = [
        progress::step("cargo fmt", &mut fmt),
        progress::own_step("tidy", tidy::run),
        progress::step("cargo clippy", &mut clippy),
        deny(),
        console::check(),
    ];
    let failed: Vec<String> = outcomes.into_iter().filter_map(|o| o.err().map(|e| format!("{e:#}"))).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
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
