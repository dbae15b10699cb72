//! What an Envoy would reject of a plan. A proxy of each group is judged with its whole configuration; of one that is rejected, the resources at
//! fault are found by taking changes back, half by half.

use std::collections::BTreeSet;

use admin::{GroupReport, PlanReport, PlannedConfiguration, PlannedResource};
use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::super::counted;
use super::envoy_validator::{Answer, EnvoyValidator};
use super::static_bootstrap::{self, Chosen};
use super::table;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PredictedRejections {
    /// The version of the Envoy that was asked.
    envoy: String,
    /// Groups that it accepts.
    accepted: usize,
    pub(super) rejected: Vec<PredictedRejection>,
    /// Groups of which that is not known.
    unknown: Vec<Unjudged>,
}

#[derive(Debug, Serialize)]
pub(super) struct PredictedRejection {
    /// Its place in the plan.
    group: usize,
    /// Of the group, the one that was judged.
    proxy: String,
    /// More than one: Envoy accepts each of them alone.
    resources: Vec<RejectedResource>,
    /// Those of the plan that the resources are made from; if there are none, all that they are made from.
    objects: Vec<String>,
    /// Envoy's text.
    reason: String,
}

#[derive(Debug, Serialize)]
pub(super) struct RejectedResource {
    #[serde(rename = "type")]
    kind: String,
    name: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Unjudged {
    group: usize,
    proxy: String,
    why: String,
}

impl PredictedRejections {
    /// `configuration`: of a proxy that changes.
    pub(super) fn of(
        plan: &PlanReport,
        mut envoy: EnvoyValidator,
        configuration: impl Fn(&str) -> Result<PlannedConfiguration>,
    ) -> Result<PredictedRejections> {
        let version = envoy.version.clone();
        let mut all = PredictedRejections { envoy: version, accepted: 0, rejected: Vec::new(), unknown: Vec::new() };
        let objects: BTreeSet<String> = plan.objects.iter().map(table::object_name).collect();
        for (at, group) in plan.groups.iter().enumerate() {
            let proxy = group.workloads.iter().flat_map(|it| &it.names).next().cloned().unwrap_or_default();
            eprintln!("envoy {}: {proxy}, {} of {} groups of proxies", all.envoy, at + 1, plan.groups.len());
            let configuration = configuration(&proxy)?;
            let judged = GroupJudge { envoy: &mut envoy, configuration: &configuration, objects: &objects }.judge()?;
            let has_rejections = !judged.rejections.is_empty();
            all.rejected.extend(judged.rejections.into_iter().map(|it| PredictedRejection { group: at, ..it }));
            match judged.unknown {
                Some(why) => all.unknown.push(Unjudged { group: at, proxy, why }),
                None => all.accepted += usize::from(!has_rejections),
            }
        }
        Ok(all)
    }

    pub(super) fn text(&self, plan: &PlanReport) -> String {
        let mut text = String::from("\n");
        let groups = |count: usize| counted(count, "group of proxies", "groups of proxies");
        if self.accepted > 0 {
            text.push_str(&format!("Envoy {} accepts what changes for {}\n", self.envoy, groups(self.accepted)));
        }
        for PredictedRejection { group, resources, objects, reason, .. } in &self.rejected {
            let names: Vec<String> = resources.iter().map(|it| format!("{} {}", it.kind, it.name)).collect();
            let workload = plan.groups.get(*group).map(first_workload).unwrap_or_default();
            text.push_str(&format!("Envoy {} would reject {} of {workload}\n", self.envoy, names.join(" with ")));
            text.push_str(&format!("  {reason}\n"));
            objects.iter().for_each(|object| text.push_str(&format!("  from {object}\n")));
        }
        for Unjudged { proxy, why, .. } in self.unknown.iter().take(SHOWN) {
            text.push_str(&format!("not known for {proxy} and its group: {why}\n"));
        }
        if self.unknown.len() > SHOWN {
            text.push_str(&format!("and not for {}\n", groups(self.unknown.len() - SHOWN)));
        }
        if plan.groups.is_empty() { String::new() } else { text }
    }
}

/// Of an EnvoyFilter, provenance names the patch, too.
fn is_of(objects: &BTreeSet<String>, source: &str) -> bool {
    let named =
        |object: &String| source.strip_prefix(object).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
    objects.iter().any(named)
}

/// Groups that are not judged, with the reason.
const SHOWN: usize = 5;

fn first_workload(group: &GroupReport) -> String {
    let more = group.workloads.len().saturating_sub(1);
    let first = group.workloads.first().map(table::workload_text).unwrap_or_default();
    if more == 0 { first } else { format!("{first} and {}", counted(more, "other workload", "other workloads")) }
}

struct GroupJudge<'a> {
    envoy: &'a mut EnvoyValidator,
    configuration: &'a PlannedConfiguration,
    /// Of the plan.
    objects: &'a BTreeSet<String>,
}

#[derive(Default)]
struct JudgedGroup {
    rejections: Vec<PredictedRejection>,
    /// Why it is not known whether there are (more) rejections.
    unknown: Option<String>,
}

const NOT_ASKED: &str = "the limit of --validations is reached";

impl GroupJudge<'_> {
    fn judge(mut self) -> Result<JudgedGroup> {
        let mut judged = JudgedGroup::default();
        let all = &self.configuration.resources;
        let mut changes: Vec<usize> = (0..all.len()).filter(|at| all[*at].changes && !all[*at].redacted).collect();
        if all.iter().any(|it| it.changes && it.redacted) {
            judged.unknown = Some("what changes holds a key, which is not shown to Envoy".to_owned());
        }
        loop {
            let reason = match self.answer(&changes)? {
                Answer::Accepted => return Ok(judged),
                Answer::Rejected(reason) => reason,
                Answer::NotAsked => return Ok(JudgedGroup { unknown: Some(NOT_ASKED.to_owned()), ..judged }),
            };
            // Once is enough: what is taken back afterwards is as it is now.
            if judged.rejections.is_empty()
                && let Answer::Rejected(reason) = self.answer(&[])?
            {
                let why = format!("this Envoy rejects what the proxy has now, too: {reason}");
                return Ok(JudgedGroup { unknown: Some(why), ..judged });
            }
            let Some((faulty, reason)) = self.culprits(changes.clone(), reason)? else {
                return Ok(JudgedGroup { unknown: Some(NOT_ASKED.to_owned()), ..judged });
            };
            changes.retain(|at| !faulty.contains(at));
            judged.rejections.push(self.rejection(&faulty, reason));
        }
    }

    /// The fewest of these changes that are rejected, with the reason. `None`: it was not possible to ask as often as needed.
    fn culprits(&mut self, mut changes: Vec<usize>, mut reason: String) -> Result<Option<(Vec<usize>, String)>> {
        'smaller: while changes.len() > 1 {
            let (first, second) = changes.split_at(changes.len() / 2);
            for half in [first.to_vec(), second.to_vec()] {
                match self.answer(&half)? {
                    Answer::Accepted => {}
                    Answer::NotAsked => return Ok(None),
                    Answer::Rejected(why) => {
                        (changes, reason) = (half, why);
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        Ok(Some((changes, reason)))
    }

    /// To the configuration with only these changes.
    fn answer(&mut self, changes: &[usize]) -> Result<Answer> {
        let message = |at: usize, it: &'_ PlannedResource| -> Option<Value> {
            let side = if it.changes && !changes.contains(&at) { &it.before } else { &it.after };
            side.clone().filter(|_| !it.redacted)
        };
        let all = self.configuration.resources.iter().enumerate();
        let messages: Vec<(&PlannedResource, Value)> =
            all.filter_map(|(at, it)| Some((it, message(at, it)?))).collect();
        let chosen: Chosen<'_> = messages.iter().map(|(it, message)| (*it, message)).collect();
        self.envoy.validate(&static_bootstrap::document(&self.configuration.proxy, &chosen))
    }

    fn rejection(&self, faulty: &[usize], reason: String) -> PredictedRejection {
        let resources: Vec<&PlannedResource> = faulty.iter().map(|at| &self.configuration.resources[*at]).collect();
        let from: BTreeSet<&String> = resources.iter().flat_map(|it| &it.objects).collect();
        let of_plan: Vec<String> = from.iter().filter(|it| is_of(self.objects, it)).map(|it| (*it).clone()).collect();
        PredictedRejection {
            group: 0,
            proxy: self.configuration.proxy.clone(),
            resources: resources
                .iter()
                .map(|it| RejectedResource { kind: it.kind.clone(), name: it.name.clone() })
                .collect(),
            objects: if of_plan.is_empty() { from.into_iter().cloned().collect() } else { of_plan },
            reason,
        }
    }
}
