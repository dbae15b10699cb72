//! `cargo xtask differential`: builds the program of crates/differential as the tests are built, and runs it.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::reference::Reference;
use crate::{progress, project};

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// --seeds A..B and others; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// With the exit code of the program.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // All packages, so that their features are those of the tests, which are built already.
    progress::step("build", &mut project::cargo(["build", "--workspace", "--bin", "differential"]))?;
    if !args.arguments.iter().any(|it| it == "--help" || it == "-h") {
        Reference::find()?;
    }
    let mut command = Command::new(project::target().join("debug/differential"));
    let status = command.args(&args.arguments).status().context("start differential")?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(2)))
}
