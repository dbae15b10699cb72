//! `meltemi values`: converts an IstioOperator to values of our chart.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use config::diagnostic::Severity;

use super::{CommandOutcome, print_document};
use settings::args::ValuesArgs;

pub fn run(args: &ValuesArgs) -> Result<CommandOutcome> {
    let (file, text) = read(&args.filename)?;
    let converted = admin::operator_values::convert(&file, &text)?;
    converted.diagnostics.iter().for_each(|diagnostic| eprintln!("{diagnostic}"));
    if converted.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) {
        return Ok(CommandOutcome::Found);
    }
    print_document(&converted.values, args.output);
    Ok(if args.strict && !converted.diagnostics.is_empty() { CommandOutcome::Found } else { CommandOutcome::Done })
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
