//! Creates and registers metrics, and records their names, labels and buckets for the metrics page. What they count is decided elsewhere.

use std::sync::{Mutex, PoisonError};

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    core::Collector,
};

/// Buckets below istiod's first one, and above its last one, at which its own alert cannot fire.
const MORE_SECONDS: [f64; 6] = [0.005, 0.01, 0.05, 60.0, 120.0, 300.0];

pub struct Register {
    registry: Registry,
    metrics: Mutex<Vec<MetricInfo>>,
}

/// One metric, whether it has values yet or not.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricInfo {
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    pub labels: Vec<String>,
    pub help: String,
    /// Empty unless it is a histogram.
    pub buckets: Vec<f64>,
}

impl Register {
    pub fn new(registry: Registry) -> Register {
        Register { registry, metrics: Mutex::default() }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// In the order of their registration.
    pub fn metrics(&self) -> Vec<MetricInfo> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Registers a collector of the caller.
    pub fn add<C: Collector + Clone + 'static>(
        &self,
        kind: &'static str,
        collector: C,
    ) -> Result<C, prometheus::Error> {
        self.register(kind, &[], collector)
    }

    fn register<C: Collector + Clone + 'static>(
        &self,
        kind: &'static str,
        buckets: &[f64],
        collector: C,
    ) -> Result<C, prometheus::Error> {
        let mut metrics = self.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        metrics.extend(collector.desc().iter().map(|desc| MetricInfo {
            name: desc.fq_name.clone(),
            kind,
            labels: desc.variable_labels.clone(),
            help: desc.help.clone(),
            buckets: buckets.to_vec(),
        }));
        drop(metrics);
        self.registry.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    pub fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register("counter", &[], IntCounter::new(name, help)?)
    }

    pub fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.register("counter", &[], IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    pub fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register("gauge", &[], IntGauge::new(name, help)?)
    }

    pub fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.register("gauge", &[], IntGaugeVec::new(Opts::new(name, help), labels)?)
    }

    /// A histogram of seconds: istiod's buckets and more.
    pub fn seconds(&self, name: &str, help: &str, istiod: &[f64]) -> Result<Histogram, prometheus::Error> {
        let buckets = seconds(istiod);
        let opts = HistogramOpts::new(name, help).buckets(buckets.clone());
        self.register("histogram", &buckets, Histogram::with_opts(opts)?)
    }

    /// The same by label.
    pub fn seconds_by(
        &self,
        name: &str,
        help: &str,
        istiod: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        self.histograms(name, help, &seconds(istiod), labels)
    }

    pub fn histograms(
        &self,
        name: &str,
        help: &str,
        buckets: &[f64],
        labels: &[&str],
    ) -> Result<HistogramVec, prometheus::Error> {
        let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.register("histogram", buckets, HistogramVec::new(opts, labels)?)
    }
}

fn seconds(istiod: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = istiod.iter().chain(&MORE_SECONDS).copied().collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_extend_those_of_istiod_on_both_sides() {
        assert_eq!(seconds(&[0.01, 0.1, 30.0]), [0.005, 0.01, 0.05, 0.1, 30.0, 60.0, 120.0, 300.0]);
    }

    #[test]
    fn lists_metrics_that_have_no_values() {
        let register = Register::new(Registry::new());
        register.counters("a_total", "All.", &["kind"]).expect("registers");
        assert!(register.registry().gather().is_empty());
        let [only] = &register.metrics()[..] else { panic!("one") };
        assert_eq!(
            (&*only.name, only.kind, &only.labels[..], &*only.help),
            ("a_total", "counter", &["kind".to_owned()][..], "All.")
        );
    }
}
