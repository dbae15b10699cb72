//! All seeds: each series of meshes is compared, what differs is confirmed with a new istiod, and made smaller.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::Result;
use testkit::parity::{Comparison, ResourceDifference};

use crate::mesh::Mesh;
use crate::open::{OpenList, signature};
use crate::planes::Planes;
use crate::pool::Pool;
use crate::report::{Finding, Report, Verdict};
use crate::shrink::shrink;

/// Differences of one mesh that are made smaller. Most have one cause.
const SHRUNK: usize = 2;
/// New istiods that are asked about a mesh that differs.
const RESTARTS: usize = 2;

pub(crate) struct Run<'a> {
    pub(crate) planes: Planes,
    pub(crate) pool: &'a Pool,
    pub(crate) open: &'a OpenList,
    pub(crate) edits: usize,
    /// Trials for each difference.
    pub(crate) budget: usize,
    pub(crate) report: Report,
}

impl Run<'_> {
    pub(crate) fn seeds(mut self, seeds: Range<u64>) -> Result<Report> {
        for seed in seeds {
            let mut verdict = Verdict::Equal;
            for (round, mesh) in Mesh::series(self.pool, seed, self.edits).into_iter().enumerate() {
                verdict = verdict.max(self.mesh(seed, round, &mesh)?);
            }
            eprintln!("seed {seed}: {}", verdict.text());
            self.report.count(verdict);
        }
        Ok(self.report)
    }

    fn mesh(&mut self, seed: u64, round: usize, mesh: &Mesh) -> Result<Verdict> {
        let compared = match self.planes.compare(mesh) {
            Ok(compared) => compared,
            Err(error) => {
                eprintln!("seed {seed}, round {round}: {error:#}");
                self.planes.restart_istiod()?;
                return Ok(Verdict::Unanswered);
            }
        };
        let found = self.without_past(mesh, compared.found)?;
        self.report.compared(&found, compared.refused);
        if found.equal() {
            return Ok(Verdict::Equal);
        }
        let mut left = self.unlisted(&found);
        self.report.open.extend_counts(found.differences.iter().filter_map(|it| self.open.reason(it)));
        if left.is_empty() {
            return Ok(Verdict::Open);
        }
        let signatures: BTreeSet<String> = left.iter().map(signature).collect();
        if signatures.iter().any(|it| self.report.count_again(it)) {
            return Ok(Verdict::Different);
        }
        for _ in 0..SHRUNK {
            let Some(lead) = left.first().cloned() else { break };
            let finding = match self.finding(seed, round, mesh, &lead, false)? {
                None => self.finding(seed, round, mesh, &lead, true)?,
                found => found,
            };
            let Some(finding) = finding else {
                eprintln!("seed {seed}, round {round}: does not stay\n  {lead}");
                return Ok(Verdict::Unsteady);
            };
            let explained: BTreeSet<String> = finding.signatures.iter().cloned().collect();
            left.retain(|it| !explained.contains(&signature(it)));
            eprintln!("{finding}");
            self.report.findings.push(finding);
        }
        Ok(Verdict::Different)
    }

    /// What istiod had before can show in its answer, such as service accounts of endpoints that are gone, and so can the order in which it
    /// reads objects when it starts. So several new ones are asked, and the answer with the fewest differences counts.
    fn without_past(&mut self, mesh: &Mesh, mut best: Comparison) -> Result<Comparison> {
        for _ in 0..RESTARTS {
            if self.unlisted(&best).is_empty() {
                break;
            }
            self.planes.restart_istiod()?;
            let found = self.planes.compare(mesh)?.found;
            if found.equal() {
                self.report.history += 1;
            }
            if found.differences.len() < best.differences.len() {
                best = found;
            }
        }
        Ok(best)
    }

    /// `careful`: each smaller mesh that shows the difference is asked again of a new istiod. `None`: it only showed what istiod had before.
    fn finding(
        &mut self,
        seed: u64,
        round: usize,
        mesh: &Mesh,
        lead: &ResourceDifference,
        careful: bool,
    ) -> Result<Option<Finding>> {
        let wanted = signature(lead);
        let mut start = mesh.clone();
        start.proxies.retain(|proxy| proxy["name"] == lead.proxy.as_str());
        let Run { planes, open, .. } = self;
        let mut shows = |mesh: &Mesh| -> Result<bool> {
            let once = |planes: &mut Planes| -> Result<bool> {
                let Ok(compared) = planes.compare(mesh) else {
                    planes.restart_istiod()?;
                    return Ok(false);
                };
                let mut differences = compared.found.differences.iter();
                Ok(compared.refused == 0 && differences.any(|it| open.reason(it).is_none() && signature(it) == wanted))
            };
            let shown = once(planes)?;
            if !shown || !careful {
                return Ok(shown);
            }
            planes.restart_istiod()?;
            once(planes)
        };
        let small = shrink(start, self.budget, &mut shows)?;
        self.planes.restart_istiod()?;
        let found = self.planes.compare(&small)?.found;
        let signatures: BTreeSet<String> = self.unlisted(&found).iter().map(signature).collect();
        if !signatures.contains(&wanted) {
            return Ok(None);
        }
        Ok(Some(Finding {
            seed,
            round,
            times: 1,
            signatures: signatures.into_iter().collect(),
            differences: found.differences.iter().map(ToString::to_string).collect(),
            objects: small.objects,
            proxies: small.proxies,
        }))
    }

    fn unlisted(&self, found: &Comparison) -> Vec<ResourceDifference> {
        found.differences.iter().filter(|it| self.open.reason(it).is_none()).cloned().collect()
    }
}
