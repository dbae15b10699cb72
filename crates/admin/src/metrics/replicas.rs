//! Metrics of a replica among others: whether it leads, and how it sees the replicas of its revision. Read when Prometheus scrapes.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use server::{ReplicaState, SharedState};

pub(crate) struct ReplicaCollector {
    /// The state holds the registry, and with it this.
    state: Weak<SharedState>,
    leader: IntGaugeVec,
    replicas: IntGaugeVec,
}

const SOUND: &str = "the name and the labels are constants";

impl ReplicaCollector {
    pub(crate) fn new(state: Weak<SharedState>) -> ReplicaCollector {
        let gauge =
            |name: &str, help: &str, label: &str| IntGaugeVec::new(Opts::new(name, help), &[label]).expect(SOUND);
        ReplicaCollector {
            state,
            leader: gauge("meltemi_leader", "1 while this replica holds the Lease, else 0", "lease"),
            replicas: gauge(
                "meltemi_replicas",
                "replicas of this revision as this one sees them, by state: `in step`, `settling` (objects are changing), `differs` (it holds other objects), \
                 `silent` (no report for 20 s), `cut off` (this one cannot report), `unknown`",
                "state",
            ),
        }
    }

    fn read(&self) {
        let Some(state) = self.state.upgrade() else { return };
        for (lease, held) in state.leases.get().into_iter().flatten() {
            self.leader.with_label_values(&[lease]).set(i64::from(held.load(Ordering::Relaxed)));
        }
        let Some(balancer) = state.replicas.get() else { return };
        let seen = balancer.statuses();
        for kind in ReplicaState::ALL {
            let count = seen.iter().filter(|it| it.state == kind).count();
            self.replicas.with_label_values(&[kind.name()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

impl Collector for ReplicaCollector {
    fn desc(&self) -> Vec<&Desc> {
        [self.leader.desc(), self.replicas.desc()].concat()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.read();
        [self.leader.collect(), self.replicas.collect()].concat()
    }
}
