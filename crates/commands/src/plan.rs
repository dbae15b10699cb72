//! `meltemi plan`: what objects would change, for the proxies of a running server or of a folder.

mod offline;
mod table;

pub(crate) use table::resource_text;

use admin::PlanReport;
use anyhow::Result;
use serde_json::Value;

use super::client::{self, PageClient};
use super::object_text::ObjectText;
use super::{CommandOutcome, print};
use settings::args::{Env, Listing, PlanArgs};

pub fn run(args: &PlanArgs, env: &Env) -> Result<CommandOutcome> {
    let objects = ObjectText::read(&args.filename)?;
    let report = match args.path.clone() {
        Some(path) => offline::report(path, &objects.text, args, env)?,
        None => of_server(args, &objects)?,
    };
    match args.output {
        Listing::Json => print(&format!("{:#}\n", document(&report, &objects)?)),
        Listing::Text => print(&table::text(&report, &objects, args.diff)),
    }
    let has_errors = report.notes.iter().any(|note| note.severity == "error");
    let has_changes = args.check && report.affected > 0;
    Ok(if has_errors || has_changes { CommandOutcome::Found } else { CommandOutcome::Done })
}

fn of_server(args: &PlanArgs, objects: &ObjectText) -> Result<PlanReport> {
    let server = PageClient::new(&args.target)?;
    let mut path = "/debug/plan?".to_owned();
    for (flag, name) in [(args.delete, "delete&"), (args.diff, "full&")] {
        path.push_str(if flag { name } else { "" });
    }
    client::run(server.post_objects(&path, &objects.text, "a plan"))
}

/// Notes name the file and its line, as those of `check` do.
fn document(report: &PlanReport, objects: &ObjectText) -> Result<Value> {
    let mut document = serde_json::to_value(report)?;
    for (at, note) in report.notes.iter().enumerate() {
        if let Some((file, line)) = note.line.and_then(|line| objects.place(line)) {
            document["notes"][at]["file"] = file.into();
            document["notes"][at]["line"] = line.into();
        }
    }
    Ok(document)
}
