//! `meltemi values`: converts an IstioOperator to values of our chart.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use config::diagnostic::Severity;

use super::{Outcome, print_document};
use crate::args::Values;

pub(crate) fn run(args: &Values) -> Result<Outcome> {
    let (file, text) = read(&args.filename)?;
    let converted = admin::operator_values::convert(&file, &text)?;
    converted.diagnostics.iter().for_each(|diagnostic| eprintln!("{diagnostic}"));
    if converted.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Ok(Outcome::Found);
    }
    print_document(&converted.values, args.output);
    Ok(if args.strict && !converted.diagnostics.is_empty() { Outcome::Found } else { Outcome::Done })
}

fn read(file: &Path) -> Result<(String, String)> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read stdin")?;
        return Ok(("stdin".to_owned(), text));
    }
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
    Ok((name, text))
}
