//! `cargo xtask validation`: records what a real istioctl thinks of the objects of tests/validation. Comparing is a test of `config`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::project;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The program that is asked
    #[arg(long, default_value = "istioctl")]
    istioctl: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = project::root().join("tests/validation");
    let mut files = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut lines = String::from(
        "# What istiod's webhook thinks of each object: kind, name, verdict. Written by `cargo xtask validation`.\n",
    );
    for file in files {
        let text = fs::read_to_string(&file)?;
        for document in text.split("\n---\n").skip(1) {
            let (kind, name) = (word(document, "kind: ")?, word(document, "{name: ")?);
            writeln!(lines, "{kind} {name} {}", verdict(args, document)?)?;
        }
    }
    fs::write(folder.join("verdicts.txt"), lines)?;
    Ok(())
}

fn word<'a>(document: &'a str, key: &str) -> Result<&'a str> {
    let rest = document.split_once(key).with_context(|| format!("an object has no {key:?}:\n{document}"))?.1;
    Ok(rest.split(['\n', ',', '}']).next().unwrap_or(rest))
}

fn verdict(args: &Args, document: &str) -> Result<&'static str> {
    let mut child = Command::new(&args.istioctl)
        .args(["validate", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}; name one with --istioctl", args.istioctl.display()))?;
    child.stdin.take().context("its input was asked for")?.write_all(document.as_bytes())?;
    let output = child.wait_with_output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    Ok(match (output.status.success(), stdout.contains("validation succeed")) {
        (true, true) => "accepted",
        (true, false) => "warned",
        (false, _) if String::from_utf8_lossy(&output.stderr).contains("cannot parse") => {
            bail!("istioctl cannot read an object, so that its verdict says nothing:\n{document}")
        }
        (false, _) => "refused",
    })
}
