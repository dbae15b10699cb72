//! Whether a root rotation may advance: the reports of all replicas, added up, and the conditions that are not met. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The share of workloads that must have a certificate of a stage before the next one begins.
pub(crate) const THRESHOLD: f64 = 0.99;
/// How many uncovered workloads are named.
pub(crate) const NAMED: usize = 10;
/// The age of a report from which the replica may be at any stage.
pub(crate) const SILENT: Duration = Duration::from_secs(20);

/// The report of one replica about its stage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CoverageReport {
    /// The stage and the keys of the roots that its CA has loaded; equal in all replicas at the same stage.
    pub(crate) stage: String,
    /// When the stage began, in seconds since 1970. `None`: no root is being rotated.
    pub(crate) since: Option<u64>,
    /// Authenticated workloads that are connected to it.
    pub(crate) workloads: usize,
    /// Those that have had a certificate since the stage began.
    pub(crate) covered: usize,
    /// Those that have had none, and whose older certificates have expired.
    pub(crate) expired: usize,
    /// Some of those that are not covered.
    pub(crate) waiting_for: Vec<String>,
    /// Workloads for which another replica may have signed; see `exchange.rs`.
    pub(crate) asks: String,
    /// By replica.
    pub(crate) answers: BTreeMap<String, SignedAnswer>,
    /// RFC 3339, by its own clock, for people; and so that no two reports are equal.
    pub(crate) at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SignedAnswer {
    /// The digest of the question.
    pub(crate) to: String,
    /// A bit for each workload in the question, in hex.
    pub(crate) signed: String,
}

/// The coverage of one replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaCoverage {
    pub name: String,
    pub proxies: usize,
    pub covered: usize,
    pub expired: usize,
    /// Why it blocks the rotation. `None`: it is at the same stage.
    pub problem: Option<String>,
}

/// Another replica's report.
pub(crate) struct PeerCoverage {
    pub(crate) name: String,
    pub(crate) report: CoverageReport,
    pub(crate) silent: Duration,
}

/// Conditions of the next stage, besides the threshold.
pub(crate) struct Conditions {
    /// Workloads that must be covered at the least.
    pub(crate) workloads: usize,
    /// The age that the current stage must have, so that ConfigMaps with the roots have reached pods. Zero: without a cluster.
    pub(crate) min_stage_age: Duration,
}

/// All reports, added up.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) proxies: usize,
    pub(crate) covered: usize,
    pub(crate) expired: usize,
    pub(crate) waiting_for: Vec<String>,
    pub(crate) replicas: Vec<ReplicaCoverage>,
}

impl Evidence {
    /// `own`: the report of this replica, made now; `None` as name: it is the only one.
    pub(crate) fn new(own: &CoverageReport, name: Option<&str>, others: &[PeerCoverage]) -> Evidence {
        let mut evidence = Evidence::default();
        evidence.add(own);
        if let Some(name) = name {
            evidence.replicas.push(coverage(name, own, None));
        }
        for PeerCoverage { name, report, silent } in others {
            let problem = problem(own, report, *silent);
            if problem.is_none() {
                evidence.add(report);
            }
            evidence.replicas.push(coverage(name, report, problem));
        }
        evidence.waiting_for.truncate(NAMED);
        evidence
    }

    fn add(&mut self, report: &CoverageReport) {
        self.proxies += report.workloads;
        self.covered += report.covered;
        self.expired += report.expired;
        self.waiting_for.extend_from_slice(&report.waiting_for);
    }

    /// The share of covered workloads without the excluded ones. 0 where there are none: no workloads are no evidence.
    pub(crate) fn coverage(&self) -> f64 {
        match self.proxies.saturating_sub(self.expired) {
            0 => 0.0,
            counted => self.covered as f64 / counted as f64,
        }
    }

    /// The conditions that are not met. `stage`: its name; `age`: since it began, `None` while no root is being rotated.
    pub(crate) fn missing(&self, stage: &str, age: Option<Duration>, conditions: &Conditions) -> Vec<String> {
        let of_replicas = self.replicas.iter().filter_map(|replica| replica.problem.clone());
        let mut missing: Vec<String> = of_replicas.collect();
        if self.covered < conditions.workloads {
            let have =
                if age.is_none() { "are connected" } else { "are known to have had a certificate of this stage" };
            missing.push(format!("{} workloads {have}, and at least {} must", self.covered, conditions.workloads));
        }
        if self.covered > 0 && self.coverage() < THRESHOLD || self.covered == 0 && self.proxies > self.expired {
            missing.push(format!(
                "{} of {} connected workloads have had a certificate since the stage {stage:?} began, and {:.0} % must; still waited for: {}",
                self.covered,
                self.proxies.saturating_sub(self.expired),
                THRESHOLD * 100.0,
                self.waiting_for.join(", ")
            ));
        }
        if let Some(age) = age.filter(|age| *age < conditions.min_stage_age) {
            missing.push(format!(
                "the stage {stage:?} began {} s ago, and ConfigMaps with the roots need {} s to reach all pods",
                age.as_secs(),
                conditions.min_stage_age.as_secs()
            ));
        }
        missing
    }
}

fn problem(own: &CoverageReport, other: &CoverageReport, silent: Duration) -> Option<String> {
    if silent > SILENT {
        Some(format!("has reported nothing for {} s", silent.as_secs()))
    } else if other.stage.is_empty() {
        Some("does not report how far its workloads are; is it an older version?".to_owned())
    } else if other.stage != own.stage {
        Some(format!("is at another stage, {}, than this one, {}", other.stage, own.stage))
    } else {
        None
    }
}

fn coverage(name: &str, report: &CoverageReport, problem: Option<String>) -> ReplicaCoverage {
    ReplicaCoverage {
        name: name.to_owned(),
        proxies: report.workloads,
        covered: report.covered,
        expired: report.expired,
        problem: problem.map(|problem| format!("replica {name} {problem}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGE: Duration = Duration::from_secs(600);

    fn report(workloads: usize, covered: usize, expired: usize) -> CoverageReport {
        CoverageReport {
            stage: "announced-a-b".into(),
            since: Some(1),
            workloads,
            covered,
            expired,
            ..CoverageReport::default()
        }
    }

    fn replica(report: CoverageReport, silent: u64) -> PeerCoverage {
        PeerCoverage { name: "other".into(), report, silent: Duration::from_secs(silent) }
    }

    fn missing(own: &CoverageReport, others: &[PeerCoverage]) -> String {
        let conditions = Conditions { workloads: 1, min_stage_age: Duration::from_secs(120) };
        Evidence::new(own, Some("own"), others).missing("announced", Some(STAGE), &conditions).join("; ")
    }

    #[test]
    fn no_workload_is_no_evidence() {
        let none = report(0, 0, 0);
        assert_eq!(Evidence::new(&none, None, &[]).coverage(), 0.0);
        assert!(missing(&none, &[]).contains("at least 1 must"));
        let conditions = Conditions { workloads: 3, min_stage_age: Duration::ZERO };
        let two = Evidence::new(&report(2, 2, 0), None, &[]);
        assert!(
            two.missing("settled", None, &conditions)[0].contains("2 workloads are connected, and at least 3 must")
        );
    }

    #[test]
    fn ninety_nine_of_a_hundred_are_enough() {
        assert_eq!(missing(&report(100, 99, 0), &[]), "");
        assert!(missing(&report(100, 98, 0), &[]).contains("98 of 100"));
        assert!(missing(&report(5, 0, 0), &[]).contains("0 of 5"));
    }

    #[test]
    fn workloads_of_all_replicas_count() {
        assert_eq!(missing(&report(10, 10, 0), &[replica(report(20, 20, 0), 1)]), "");
        assert!(missing(&report(10, 10, 0), &[replica(report(20, 0, 0), 1)]).contains("10 of 30"));
        assert_eq!(missing(&report(0, 0, 0), &[replica(report(5, 5, 0), 1)]), "", "all are connected to the other");
    }

    #[test]
    fn a_replica_that_is_silent_old_or_at_another_stage_is_named() {
        let own = report(10, 10, 0);
        for (other, silent, why) in [
            (report(5, 5, 0), 21, "replica other has reported nothing for 21 s"),
            (CoverageReport::default(), 1, "replica other does not report"),
            (
                CoverageReport { stage: "settled-a".into(), ..report(5, 5, 0) },
                1,
                "replica other is at another stage, settled-a",
            ),
        ] {
            let reasons = missing(&own, &[replica(other, silent)]);
            assert!(reasons.contains(why), "{reasons}");
        }
    }

    #[test]
    fn a_workload_that_never_renews_does_not_block_beyond_the_lifetime_of_certificates() {
        assert!(missing(&report(10, 9, 0), &[]).contains("9 of 10"), "one of ten is less than 99 %");
        assert_eq!(missing(&report(10, 9, 1), &[]), "");
        assert!(missing(&report(10, 0, 10), &[]).contains("at least 1 must"), "but somebody must have renewed");
    }

    #[test]
    fn a_stage_lasts_until_config_maps_are_synced() {
        let (own, conditions) = (report(1, 1, 0), Conditions { workloads: 1, min_stage_age: Duration::from_secs(120) });
        let at = |seconds| {
            let age = Some(Duration::from_secs(seconds));
            Evidence::new(&own, None, &[]).missing("announced", age, &conditions).len()
        };
        assert_eq!((at(30), at(120)), (1, 0));
    }
}
