//! How long an API server waited for a webhook: `apiserver_admission_webhook_admission_duration_seconds` of its metrics page.

const METRIC: &str = "apiserver_admission_webhook_admission_duration_seconds";

/// A histogram.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct WebhookLatency {
    /// Bounds in seconds, ascending, and the answers within them. The last bound is infinite.
    buckets: Vec<(f64, f64)>,
    /// Seconds of all answers.
    sum: f64,
}

impl WebhookLatency {
    /// `page`: the metrics; `webhook`: its name.
    pub(super) fn parse(page: &str, webhook: &str) -> WebhookLatency {
        let named = format!("name=\"{webhook}\"");
        let mut latency = WebhookLatency::default();
        for line in page.lines().filter_map(|line| line.strip_prefix(METRIC)).filter(|line| line.contains(&named)) {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            if series.starts_with("_sum{") {
                latency.sum += value;
            }
            let bound =
                series.strip_prefix("_bucket{").and_then(|labels| labels.split("le=\"").nth(1)?.split('"').next());
            if let Some(bound) = bound.and_then(|bound| bound.parse().ok()) {
                latency.add(bound, value);
            }
        }
        latency.buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
        latency
    }

    fn add(&mut self, bound: f64, count: f64) {
        match self.buckets.iter_mut().find(|(known, _)| known.total_cmp(&bound).is_eq()) {
            Some((_, counted)) => *counted += count,
            None => self.buckets.push((bound, count)),
        }
    }

    /// What came after `before`.
    pub(super) fn since(&self, before: &WebhookLatency) -> WebhookLatency {
        let mut later = self.clone();
        for (bound, count) in &before.buckets {
            later.add(*bound, -count);
        }
        later.sum -= before.sum;
        later
    }

    pub(super) fn count(&self) -> f64 {
        self.buckets.last().map_or(0.0, |(_, count)| *count)
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count().max(1.0)
    }

    /// As Prometheus computes it: evenly spread within a bucket; of the last one the bound below.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.count();
        let (mut below, mut counted) = (0.0, 0.0);
        for (bound, count) in &self.buckets {
            if *count >= wanted && bound.is_finite() {
                let within = (count - counted).max(f64::MIN_POSITIVE);
                return below + (bound - below) * (wanted - counted) / within;
            }
            if bound.is_finite() {
                (below, counted) = (*bound, *count);
            }
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(counts: [u32; 3], sum: f64) -> String {
        let line =
            |le: &str, count| format!("{METRIC}_bucket{{name=\"w\",operation=\"CREATE\",le=\"{le}\"}} {count}\n");
        let other = format!("{METRIC}_bucket{{name=\"x\",le=\"0.1\"}} 500\n");
        let buckets = line("0.1", counts[0]) + &line("0.5", counts[1]) + &line("+Inf", counts[2]);
        format!("# HELP\n{other}{buckets}{METRIC}_sum{{name=\"w\"}} {sum}\n")
    }

    #[test]
    fn the_quantile_is_that_of_what_came_after_in_the_bucket_that_has_it() {
        let before = WebhookLatency::parse(&page([10, 10, 10], 1.0), "w");
        let latency = WebhookLatency::parse(&page([60, 110, 110], 21.0), "w").since(&before);
        assert_eq!((latency.count(), latency.mean()), (100.0, 0.2));
        assert!((latency.quantile(0.5) - 0.1).abs() < 1e-9, "{}", latency.quantile(0.5));
        assert!((latency.quantile(0.75) - 0.3).abs() < 1e-9, "{}", latency.quantile(0.75));
    }

    #[test]
    fn beyond_the_last_bound_the_bound_counts() {
        assert_eq!(WebhookLatency::parse(&page([0, 1, 100], 1.0), "w").quantile(0.99), 0.5);
        assert_eq!(WebhookLatency::default().quantile(0.99), 0.0);
    }
}
