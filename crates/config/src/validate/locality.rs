//! Locality settings of DestinationRules and of the mesh config, as istiod validates them.

use super::field_context::FieldContext;
use crate::kinds::destination_rule::{Distribute, Failover, LocalityLoadBalancerSetting};

const TOPOLOGY_LABELS: [&str; 3] =
    ["topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone"];

pub(super) fn check_locality(at: &FieldContext<'_>, setting: &LocalityLoadBalancerSetting) {
    at.reject_here(exclusion_fault(setting));
    at.each("distribute", &setting.distribute, |at, distribute| at.reject("to", weights_fault(distribute)));
    at.reject("distribute", overlap_fault(setting.distribute.iter().map(|distribute| distribute.from.as_str())));
    at.each("failover", &setting.failover, |at, failover| at.reject_here(failover_fault(failover)));
}

fn exclusion_fault(setting: &LocalityLoadBalancerSetting) -> Option<String> {
    if setting.failover.is_empty() {
        return None;
    }
    if !setting.distribute.is_empty() {
        return Some("distribute and failover exclude each other; keep one of them".into());
    }
    let label = setting.failover_priority.iter().find(|label| TOPOLOGY_LABELS.contains(&label.as_str()))?;
    Some(format!("failover and the label {label} in failoverPriority exclude each other"))
}

fn weights_fault(distribute: &Distribute) -> Option<String> {
    if let Some((locality, weight)) = distribute.to.iter().find(|(_, weight)| !(1..=100).contains(*weight)) {
        return Some(format!("the weight {weight} of {locality} is out of range; use 1 to 100"));
    }
    let total: u32 = distribute.to.values().sum();
    if total != 100 {
        return Some(format!("the weights add up to {total}; they must add up to 100"));
    }
    // In reverse, so that `*` comes last, as a list requires.
    overlap_fault(distribute.to.keys().rev().map(String::as_str))
}

/// A locality must not contain an earlier one or be contained in it, except with a `*` for the rest.
fn overlap_fault<'a>(localities: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut earlier: Vec<(&str, Vec<&str>)> = Vec::new();
    for locality in localities {
        if locality.matches('*').count() > usize::from(locality.ends_with('*')) {
            return Some(format!("{locality:?}: only one * may stand, at the end"));
        }
        let parts = locality.splitn(3, '/').collect::<Vec<_>>();
        if parts.contains(&"") {
            return Some(format!("{locality:?} has an empty region, zone or subzone"));
        }
        let parts = parts.into_iter().take_while(|part| *part != "*").collect::<Vec<_>>();
        let takes_the_rest = locality.ends_with('*');
        let overlaps = |other: &[&str]| parts.starts_with(other) || !takes_the_rest && other.starts_with(&parts);
        if let Some((other, _)) = earlier.iter().find(|(_, other)| overlaps(other)) {
            return Some(format!("{locality:?} overlaps with {other:?}, which stands before it"));
        }
        earlier.push((locality, parts));
    }
    None
}

fn failover_fault(failover: &Failover) -> Option<String> {
    let Failover { from, to } = failover;
    if from == to {
        return Some(format!("from and to are both {from:?}; they must differ"));
    }
    let named = [from, to].into_iter().find(|name| name.contains(['/', '*']))?;
    Some(format!("{named:?} is not a region: failover takes no zones and no *"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_overlap(localities: &[&str], expected: bool) {
        assert_eq!(overlap_fault(localities.iter().copied()).is_some(), expected, "{localities:?}");
    }

    #[test]
    fn localities_must_not_hold_each_other() {
        check_overlap(&["r1/z1/*", "r1/z2/*", "r2/*"], false);
        check_overlap(&["r1/z1/s1", "r1/z1/s2"], false);
        check_overlap(&["r1", "r1/z1"], true);
        check_overlap(&["r1/z1", "r1"], true);
        check_overlap(&["*", "r1"], true);
        check_overlap(&["r1/*", "r1/z1/*"], true);
        check_overlap(&["r1/z1", "r1/z1"], true);
        check_overlap(&["r1/z1/s1", "r1/z1"], true);
    }

    #[test]
    fn a_star_may_take_what_is_left() {
        check_overlap(&["r1/*", "*"], false);
        check_overlap(&["r1/z1", "r1/*", "*"], false);
        check_overlap(&["*", "*"], true);
    }

    #[test]
    fn malformed_localities() {
        check_overlap(&["r*/z1"], true);
        check_overlap(&["*/*"], true);
        check_overlap(&["r1//s1"], true);
        check_overlap(&[""], true);
    }

    #[test]
    fn weights() {
        let fault = |pairs: &[(&str, u32)]| {
            let to = pairs.iter().map(|&(locality, weight)| (locality.to_owned(), weight)).collect();
            weights_fault(&Distribute { from: "r1".into(), to })
        };
        assert_eq!(fault(&[("a", 60), ("b", 40)]), None);
        assert_eq!(
            fault(&[("a", 60), ("b", 30)]).as_deref(),
            Some("the weights add up to 90; they must add up to 100")
        );
        assert_eq!(fault(&[("a", 0), ("b", 100)]).as_deref(), Some("the weight 0 of a is out of range; use 1 to 100"));
    }

    #[test]
    fn failover_is_between_regions() {
        let fault = |from: &str, to: &str| failover_fault(&Failover { from: from.into(), to: to.into() }).is_some();
        assert!(!fault("us", "eu"));
        assert!(fault("us", "us"));
        assert!(fault("us/a", "eu"));
        assert!(fault("us", "*"));
    }
}
