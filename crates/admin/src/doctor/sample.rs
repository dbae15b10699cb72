//! A page of metrics in Prometheus' text format, rates and quantiles between two of them, and what lasts over many.

use std::time::Duration;

/// One page of metrics.
#[derive(Debug, Clone, Default)]
pub struct MetricsSample {
    lines: Vec<Series>,
}

#[derive(Debug, Clone)]
struct Series {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl MetricsSample {
    /// What cannot be read is left out.
    pub fn read(text: &str) -> MetricsSample {
        MetricsSample { lines: text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect() }
    }

    /// The sum over all labels; 0: there is none.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.lines.iter().filter(|line| line.name == name).map(|line| line.value).sum()
    }

    /// By one label, the largest first.
    pub(crate) fn by(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let found = self.lines.iter().filter(|line| line.name == name);
        let mut found: Vec<_> = found.filter_map(|line| Some((line.label(label)?.to_owned(), line.value))).collect();
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found
    }

    /// Cumulative counts by upper bound, over all other labels.
    fn buckets(&self, name: &str) -> Vec<(f64, f64)> {
        let wanted = format!("{name}_bucket");
        let mut sums: Vec<(f64, f64)> = Vec::new();
        for line in self.lines.iter().filter(|line| line.name == wanted) {
            let Some(bound) = line.label("le").and_then(|bound| bound.parse::<f64>().ok()) else { continue };
            match sums.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += line.value,
                None => sums.push((bound, line.value)),
            }
        }
        sums.sort_by(|a, b| a.0.total_cmp(&b.0));
        sums
    }

    /// Since the start of the process. `None`: nothing was measured.
    pub(crate) fn quantile(&self, share: f64, name: &str) -> Option<f64> {
        quantile(share, &self.buckets(name))
    }
}

impl Series {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Two pages and the time between them.
pub struct SampleWindow<'a> {
    pub before: &'a MetricsSample,
    pub after: &'a MetricsSample,
    pub length: Duration,
}

impl SampleWindow<'_> {
    /// Per second.
    pub(crate) fn rate(&self, name: &str) -> f64 {
        (self.after.sum(name) - self.before.sum(name)).max(0.0) / self.length.as_secs_f64().max(0.001)
    }

    /// Per second and by a label, the largest first.
    pub(crate) fn rates_by(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let before = self.before.by(name, label);
        let earlier = |key: &str| before.iter().find(|(other, _)| other == key).map_or(0.0, |(_, value)| *value);
        let seconds = self.length.as_secs_f64().max(0.001);
        let mut rates: Vec<_> = self.after.by(name, label);
        rates.iter_mut().for_each(|(key, value)| *value = (*value - earlier(key)).max(0.0) / seconds);
        rates.sort_by(|a, b| b.1.total_cmp(&a.1));
        rates
    }

    /// `None`: nothing was measured in this time.
    pub(crate) fn quantile(&self, share: f64, name: &str) -> Option<f64> {
        let before = self.before.buckets(name);
        let earlier = |bound: f64| before.iter().find(|(other, _)| *other == bound).map_or(0.0, |(_, count)| *count);
        let between: Vec<_> =
            self.after.buckets(name).into_iter().map(|(bound, count)| (bound, count - earlier(bound))).collect();
        quantile(share, &between)
    }
}

/// Pages in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// Each with its time, since any point.
    pages: Vec<(Duration, MetricsSample)>,
    /// Intervals outside of which nothing is judged, as indices of their first page. `None`: all.
    chosen: Option<Vec<usize>>,
}

/// A condition is sustained if it holds in this share of the intervals in which it can be judged.
const SUSTAINED: f64 = 0.75;
/// Pods that come, change or go in a second while a rollout is under way.
const ROLLOUT: f64 = 1.0;

impl Observation {
    /// `pages`: at least one, each with its time, in order.
    pub fn new(pages: Vec<(Duration, MetricsSample)>) -> Observation {
        Observation { pages, chosen: None }
    }

    /// How long it lasted.
    pub fn length(&self) -> Duration {
        let whole = self.pages.first().zip(self.pages.last());
        whole.map_or(Duration::ZERO, |((first, _), (last, _))| last.saturating_sub(*first))
    }

    pub fn intervals(&self) -> usize {
        self.pages.len().saturating_sub(1)
    }

    /// The last page.
    pub(crate) fn last(&self) -> &MetricsSample {
        static EMPTY: MetricsSample = MetricsSample { lines: Vec::new() };
        self.pages.last().map_or(&EMPTY, |(_, page)| page)
    }

    /// From the first page to the last.
    pub(crate) fn whole(&self) -> SampleWindow<'_> {
        let first = self.pages.first().map_or(self.last(), |(_, page)| page);
        SampleWindow { before: first, after: self.last(), length: self.length() }
    }

    /// Whether `holds` is true most of the time. `None`: an interval says nothing about it.
    pub(crate) fn sustained(&self, holds: impl Fn(&SampleWindow<'_>) -> Option<bool>) -> bool {
        let windows = (0..self.intervals()).filter(|at| self.chosen.as_ref().is_none_or(|chosen| chosen.contains(at)));
        let judged: Vec<bool> = windows.filter_map(|at| holds(&self.window(at))).collect();
        let held = judged.iter().filter(|held| **held).count();
        held > 0 && held as f64 >= judged.len() as f64 * SUSTAINED
    }

    /// Without the intervals in which pods come and go.
    pub(crate) fn outside_rollouts(&self) -> Observation {
        let is_rollout = |at: &usize| {
            let events = self.window(*at).rates_by("pilot_k8s_reg_events", "type");
            events.iter().any(|(kind, rate)| kind == "Pods" && *rate > ROLLOUT)
        };
        let chosen = (0..self.intervals()).filter(|at| !is_rollout(at)).collect();
        Observation { pages: self.pages.clone(), chosen: Some(chosen) }
    }

    fn window(&self, at: usize) -> SampleWindow<'_> {
        let ((from, before), (to, after)) = (&self.pages[at], &self.pages[at + 1]);
        SampleWindow { before, after, length: to.saturating_sub(*from) }
    }
}

/// As in Prometheus: linear interpolation within a bucket, and the largest bound beyond it.
fn quantile(share: f64, buckets: &[(f64, f64)]) -> Option<f64> {
    let total = buckets.last()?.1;
    if total <= 0.0 {
        return None;
    }
    let rank = share * total;
    let at = buckets.iter().position(|(_, count)| *count >= rank)?;
    let (bound, count) = buckets[at];
    let (lower, below) = if at == 0 { (0.0, 0.0) } else { buckets[at - 1] };
    if bound.is_infinite() {
        return Some(lower);
    }
    Some(lower + (bound - lower) * (rank - below) / (count - below).max(f64::MIN_POSITIVE))
}

/// `name{key="value",..} number`
fn line(text: &str) -> Option<Series> {
    let (left, value) = text.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, rest)) = left.split_once('{') else {
        return Some(Series { name: left.trim().to_owned(), labels: Vec::new(), value });
    };
    let mut labels = Vec::new();
    let mut rest = rest.strip_suffix('}')?;
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        labels.push((key.trim_start_matches(',').to_owned(), after[..end].to_owned()));
        rest = &after[end + 1..];
    }
    Some(Series { name: name.to_owned(), labels, value })
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let found = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        found.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_and_without_labels() {
        let sample = MetricsSample::read("# HELP x y\na 2\nb{k=\"x, y\",l=\"q\\\"}\"} 3\nb{k=\"z\"} 4\nnonsense\n");
        assert_eq!((sample.sum("a"), sample.sum("b"), sample.sum("c")), (2.0, 7.0, 0.0));
        assert_eq!(sample.by("b", "k"), [("z".to_owned(), 4.0), ("x, y".to_owned(), 3.0)]);
        assert_eq!(sample.by("b", "l"), [("q\\\"}".to_owned(), 3.0)]);
    }

    /// CPU seconds at the end of each minute, and pod events.
    fn minutes(used: &[f64], pods: &[f64]) -> Observation {
        let page = |at: usize| {
            let (cpu, events) = (used[..at].iter().sum::<f64>(), pods[..at].iter().sum::<f64>());
            let text = format!("c {cpu}\npilot_k8s_reg_events{{type=\"Pods\"}} {events}\n");
            (Duration::from_secs(60 * at as u64), MetricsSample::read(&text))
        };
        Observation::new((0..=used.len()).map(page).collect())
    }

    #[test]
    fn a_peak_is_not_sustained_and_a_dip_does_not_end_what_is() {
        let high = |used: &[f64]| minutes(used, &[0.0; 8]).sustained(|it| Some(it.rate("c") > 0.8));
        assert!(high(&[60.0; 8]));
        assert!(!high(&[60.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]));
        assert!(high(&[60.0, 60.0, 60.0, 0.0, 60.0, 60.0, 60.0, 60.0]));
        assert!(!minutes(&[], &[]).sustained(|_| Some(true)), "one page has no interval");
        assert!(!minutes(&[60.0; 8], &[0.0; 8]).sustained(|_| None), "nothing was measured");
    }

    #[test]
    fn minutes_with_a_rollout_are_left_out() {
        let busy = minutes(&[60.0, 60.0, 0.0, 0.0], &[300.0, 300.0, 0.0, 0.0]);
        assert!(!busy.outside_rollouts().sustained(|it| Some(it.rate("c") > 0.8)));
        let always = minutes(&[0.0, 0.0, 60.0, 60.0], &[300.0, 300.0, 0.0, 0.0]);
        assert!(always.outside_rollouts().sustained(|it| Some(it.rate("c") > 0.8)));
    }

    #[test]
    fn quantile_between_two_samples() {
        let page = |low: u32, all: u32| {
            MetricsSample::read(&format!(
                "t_bucket{{le=\"1\"}} {low}\nt_bucket{{le=\"3\"}} {all}\nt_bucket{{le=\"+Inf\"}} {all}\n"
            ))
        };
        let (before, after) = (page(100, 100), page(100, 110));
        let window = SampleWindow { before: &before, after: &after, length: Duration::from_secs(5) };
        assert_eq!(window.quantile(0.5, "t"), Some(2.0));
        assert_eq!(before.quantile(0.5, "t"), Some(0.5));
        let still = SampleWindow { before: &after, after: &after, length: Duration::from_secs(5) };
        assert_eq!(still.quantile(0.5, "t"), None);
    }
}
