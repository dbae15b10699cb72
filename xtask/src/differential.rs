//! `cargo xtask differential`: builds the program of crates/differential as the tests are built, and runs it.

use std::os::unix::process::CommandExt;
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

/// Becomes the program, so that signals reach that: what it started ends with it. Returns only if it does not start.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    // All packages, so that their features are those of the tests, which are built already.
    progress::step("build", &mut project::cargo(["build", "--workspace", "--bin", "differential"]))?;
    if !args.arguments.iter().any(|it| it == "--help" || it == "-h") {
        Reference::find()?;
    }
    let error = Command::new(project::target().join("debug/differential")).args(&args.arguments).exec();
    Err(error).context("start differential")
}
