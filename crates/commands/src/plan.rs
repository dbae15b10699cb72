//! `meltemi plan`: what objects would change, for the proxies of a running server or of a folder, and what an Envoy says to that.

mod envoy_validator;
mod offline;
mod rejections;
mod static_bootstrap;
mod table;

pub(crate) use table::resource_text;

use admin::{PlanDetail, PlanReport, PlannedConfiguration};
use anyhow::{Context, Result};
use serde_json::Value;

use super::client::{self, PageClient};
use super::object_text::ObjectText;
use super::{CommandOutcome, print};
use envoy_validator::EnvoyValidator;
use offline::{EnvoyBuild, OfflinePlan};
use rejections::PredictedRejections;
use settings::args::{Env, Listing, PlanArgs};

pub fn run(args: &PlanArgs, env: &Env) -> Result<CommandOutcome> {
    let objects = ObjectText::read(&args.filename)?;
    let mut envoy = args.envoy.as_deref().map(|file| EnvoyValidator::new(file, args.validations)).transpose()?;
    let planner = match args.path.clone() {
        Some(path) => {
            let build = envoy.as_mut().map_or(Ok(EnvoyBuild::Istio), EnvoyValidator::build)?;
            PlanSource::Folder(OfflinePlan::new(path, &objects.text, args, env, build)?)
        }
        None => PlanSource::Server { args, objects: &objects, client: PageClient::new(&args.target)? },
    };
    let report = planner.report(args)?;
    let rejections = match envoy {
        Some(envoy) => Some(PredictedRejections::of(&report, envoy, |proxy| planner.configuration(proxy))?),
        None => None,
    };
    match args.output {
        Listing::Json => print(&format!("{:#}\n", document(&report, rejections.as_ref(), &objects)?)),
        Listing::Text => {
            print(&table::text(&report, &objects, args.diff));
            rejections.iter().for_each(|it| print(&it.text(&report)));
        }
    }
    let has_errors = report.notes.iter().any(|note| note.severity == "error");
    let has_changes = args.check && report.affected > 0;
    let is_rejected = rejections.is_some_and(|it| !it.rejected.is_empty());
    Ok(if has_errors || has_changes || is_rejected { CommandOutcome::Found } else { CommandOutcome::Done })
}

enum PlanSource<'a> {
    Folder(OfflinePlan),
    Server { args: &'a PlanArgs, objects: &'a ObjectText, client: PageClient<'a> },
}

impl PlanSource<'_> {
    fn report(&self, args: &PlanArgs) -> Result<PlanReport> {
        match self {
            PlanSource::Folder(plan) => Ok(plan.report(if args.diff { PlanDetail::FULL } else { PlanDetail::SHORT })),
            PlanSource::Server { objects, client, .. } => {
                client::run(client.post_objects(&page(args, None), &objects.text, "a plan"))
            }
        }
    }

    /// Of a proxy that changes. A server plans again for each, so that it never holds the configurations of many.
    fn configuration(&self, proxy: &str) -> Result<PlannedConfiguration> {
        match self {
            PlanSource::Folder(plan) => plan.configuration(proxy).context("the proxy is part of the plan"),
            PlanSource::Server { args, objects, client } => {
                client::run(client.post_objects(&page(args, Some(proxy)), &objects.text, "a configuration"))
            }
        }
    }
}

fn page(args: &PlanArgs, configuration: Option<&str>) -> String {
    let mut path = "/debug/plan?".to_owned();
    for (flag, name) in [(args.delete, "delete&"), (args.diff, "full&")] {
        path.push_str(if flag { name } else { "" });
    }
    if let Some(proxy) = configuration {
        path.push_str(&format!("configuration={proxy}"));
    }
    path
}

/// Notes name the file and its line, as those of `check` do.
fn document(report: &PlanReport, rejections: Option<&PredictedRejections>, objects: &ObjectText) -> Result<Value> {
    let mut document = serde_json::to_value(report)?;
    for (at, note) in report.notes.iter().enumerate() {
        if let Some((file, line)) = note.line.and_then(|line| objects.place(line)) {
            document["notes"][at]["file"] = file.into();
            document["notes"][at]["line"] = line.into();
        }
    }
    if let Some(rejections) = rejections {
        document["validation"] = serde_json::to_value(rejections)?;
    }
    Ok(document)
}
