//! Checks whose conditions take too long to produce in a test mesh; the others are tested in running meshes by `testkit/tests/operations`.

use std::time::Duration;

use super::*;
use crate::doctor::facts::EffectiveSettings;
use crate::doctor::sample::MetricsSample;

const HEALTHY: &str = "\
process_resident_memory_bytes 1e8
meltemi_memory_limit_bytes 1e9
meltemi_cpu_request_cores 2
process_cpu_seconds_total 10
";

fn found(facts: &Facts, before: &str, after: &str) -> Vec<DoctorCheck> {
    let (before, after) = (MetricsSample::read(before), MetricsSample::read(after));
    let window = SampleWindow { before: &before, after: &after, length: Duration::from_secs(10) };
    all(facts, &window).into_iter().filter(|check| check.outcome != CheckOutcome::Ok).collect()
}

/// Exactly this one.
fn check(id: &str, outcome: CheckOutcome, after: &str) -> DoctorCheck {
    let found = found(&Facts::default(), HEALTHY, after);
    let [only] = &found[..] else { panic!("{id}: {found:#?}") };
    assert_eq!((only.id, only.outcome), (id, outcome));
    assert!(!only.hint.is_empty());
    only.clone()
}

#[test]
fn a_healthy_mesh_has_no_findings() {
    assert_eq!(found(&Facts::default(), HEALTHY, HEALTHY), []);
}

#[test]
fn slow_clean_up() {
    let slow = "pilot_destroy_time_seconds_bucket{le=\"1\"} 0\npilot_destroy_time_seconds_bucket{le=\"5\"} 9\npilot_destroy_time_seconds_bucket{le=\"+Inf\"} 9\n";
    assert!(check("clean-up", CheckOutcome::Warning, &format!("{HEALTHY}{slow}")).what.contains("5.0 s"));
}

#[test]
fn memory_near_its_limit_names_the_largest_part() {
    let near = HEALTHY.replace("1e8", "9.5e8")
        + "meltemi_memory_bytes{part=\"serialization\"} 5e8\nmeltemi_memory_bytes{part=\"ack\"} 1e6\n";
    let found = check("memory", CheckOutcome::Error, &near);
    assert!(found.what.contains("95 %") && found.what.contains("serialization with 500.0 MB"), "{}", found.what);
}

#[test]
fn slow_pushes() {
    let page = |bound: &str| {
        format!(
            "{HEALTHY}pilot_xds_push_time_bucket{{le=\"{bound}\"}} 5\npilot_xds_push_time_bucket{{le=\"+Inf\"}} 5\n"
        )
    };
    check("push-time", CheckOutcome::Warning, &page("6"));
    check("push-time", CheckOutcome::Error, &page("30"));
}

/// Row of the playbook: sharding is the answer only if scope and debounce are in order.
#[test]
fn sharding_comes_last() {
    let slow = format!(
        "{HEALTHY}pilot_proxy_convergence_time_bucket{{le=\"60\"}} 5\npilot_proxy_convergence_time_bucket{{le=\"+Inf\"}} 5\n"
    );
    let ids =
        |facts: &Facts, after: &str| found(facts, HEALTHY, after).iter().map(|check| check.id).collect::<Vec<_>>();
    assert_eq!(ids(&Facts::default(), &slow), ["convergence", "sharding"]);
    let unscoped =
        Facts { unscoped: vec![UnscopedNamespace { proxies: 3, ..UnscopedNamespace::default() }], ..Facts::default() };
    assert_eq!(ids(&unscoped, &slow), ["convergence", "unscoped"]);
    let busy = HEALTHY.replace("process_cpu_seconds_total 10", "process_cpu_seconds_total 28");
    assert_eq!(ids(&Facts::default(), &busy), ["cpu", "sharding"]);
    let pushes =
        format!("{HEALTHY}pilot_xds_push_time_bucket{{le=\"30\"}} 5\npilot_xds_push_time_bucket{{le=\"+Inf\"}} 5\n");
    assert_eq!(ids(&Facts::default(), &pushes), ["push-time"], "push time alone is no reason to shard");
}

/// 10,000 proxies: with 24 hours one certificate in seven seconds, about 500 in an hour; with one hour three in a second.
#[test]
fn signatures_follow_from_proxies_and_lifetime() {
    let signing = |hours: u64| {
        let settings = EffectiveSettings { lifetime_seconds: hours * 3600, ..EffectiveSettings::default() };
        let facts = Facts { proxies: 10_000, settings, ..Facts::default() };
        let (before, after) = (MetricsSample::read(HEALTHY), MetricsSample::read(HEALTHY));
        let window = SampleWindow { before: &before, after: &after, length: Duration::from_secs(10) };
        let checks = all(&facts, &window);
        let signing = checks.into_iter().find(|check| check.id == "signing").unwrap();
        (signing.outcome, signing.what)
    };
    assert_eq!(signing(24), (CheckOutcome::Ok, "0.14 certificates a second".to_owned()));
    let (outcome, what) = signing(1);
    assert!(outcome == CheckOutcome::Warning && what.starts_with("3.5 certificates a second"), "{what}");
}
