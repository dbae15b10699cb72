//! Checks whose conditions take too long to produce in a test mesh; the others are tested in running meshes by `testkit/tests/operations`.

use std::time::Duration;

use super::*;
use crate::doctor::facts::{EffectiveSettings, UnscopedNamespace};
use crate::doctor::sample::MetricsSample;

const HEALTHY: &str = "\
process_resident_memory_bytes 1e8
meltemi_memory_limit_bytes 1e9
meltemi_cpu_request_cores 2
process_cpu_seconds_total 10
";

/// Two pages, ten seconds apart.
fn observed(before: &str, after: &str) -> Observation {
    let page = |seconds, text: &str| (Duration::from_secs(seconds), MetricsSample::read(text));
    Observation::new(vec![page(0, before), page(10, after)])
}

/// A mesh with a proxy.
fn facts() -> Facts {
    Facts { proxies: 1, expected: 1, ..Facts::default() }
}

fn found(facts: &Facts, before: &str, after: &str) -> Vec<DoctorCheck> {
    all(facts, &observed(before, after)).into_iter().filter(|check| check.outcome != CheckOutcome::Ok).collect()
}

/// Exactly this one.
fn check(id: &str, outcome: CheckOutcome, after: &str) -> DoctorCheck {
    let found = found(&facts(), HEALTHY, after);
    let [only] = &found[..] else { panic!("{id}: {found:#?}") };
    assert_eq!((only.id, only.outcome), (id, outcome));
    assert!(!only.hint.is_empty());
    only.clone()
}

#[test]
fn a_healthy_mesh_has_no_findings() {
    assert_eq!(found(&facts(), HEALTHY, HEALTHY), []);
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
    assert!(found.hint.contains("PILOT_PUSH_THROTTLE=50"), "{}", found.hint);
    for (part, remedy) in [
        ("informer_cache", "WATCHED_NAMESPACES"),
        ("push_context", "Sidecars"),
        ("ack", "shard"),
        ("push_queue", "PILOT_DEBOUNCE_AFTER=300ms"),
    ] {
        let found = check("memory", CheckOutcome::Error, &near.replace("serialization", part));
        assert!(found.hint.contains(remedy), "{part}: {}", found.hint);
    }
    let small = check("memory", CheckOutcome::Error, &near.replace("} 5e8", "} 5e6"));
    assert!(small.hint.contains("raise the limit"), "no part of it can be made so much smaller: {}", small.hint);
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
    assert_eq!(ids(&facts(), &slow), ["convergence", "sharding"]);
    let unscoped =
        Facts { unscoped: vec![UnscopedNamespace { proxies: 3, ..UnscopedNamespace::default() }], ..facts() };
    assert_eq!(ids(&unscoped, &slow), ["convergence", "unscoped"]);
    let many =
        Facts { proxies: 20_000, settings: EffectiveSettings { push_throttle: 100, ..<_>::default() }, ..facts() };
    assert_eq!(ids(&many, &slow), ["convergence", "sharding"], "a number of proxies alone delays nothing");
    assert_eq!(ids(&many, HEALTHY), [""; 0], "and is no reason either");
    let busy = HEALTHY.replace("process_cpu_seconds_total 10", "process_cpu_seconds_total 28");
    assert_eq!(ids(&facts(), &busy), ["cpu", "sharding"]);
    let rollout = format!("{busy}pilot_k8s_reg_events{{type=\"Pods\",event=\"add\"}} 50\n");
    assert_eq!(ids(&facts(), &rollout), [""; 0], "a peak in a rollout is expected");
    let pushes =
        format!("{HEALTHY}pilot_xds_push_time_bucket{{le=\"30\"}} 5\npilot_xds_push_time_bucket{{le=\"+Inf\"}} 5\n");
    assert_eq!(ids(&facts(), &pushes), ["push-time"], "push time alone is no reason to shard");
}

/// The remedy is that of the stage that takes the CPU time.
#[test]
fn a_busy_instance_names_the_stage_and_its_remedy() {
    for (stage, remedy) in [
        ("push_context", "PILOT_DEBOUNCE_AFTER=300ms"),
        ("certificates", "PILOT_WORKLOAD_CERT_TTL=48h"),
        ("serialization", "delta xDS"),
        ("push_queue", "shard by proxies"),
    ] {
        let busy = HEALTHY.replace("process_cpu_seconds_total 10", "process_cpu_seconds_total 28");
        let after = format!("{busy}meltemi_stage_cpu_seconds_total{{stage=\"{stage}\"}} 15\n");
        let found = found(&facts(), HEALTHY, &after);
        assert_eq!(found[0].id, "cpu");
        assert!(found[0].what.contains(stage) && found[0].hint.contains(remedy), "{found:#?}");
    }
}

#[test]
fn proxies_that_wait_for_their_turn() {
    let waits = format!(
        "{HEALTHY}pilot_proxy_queue_time_bucket{{le=\"5\"}} 5\npilot_proxy_queue_time_bucket{{le=\"+Inf\"}} 5\n"
    );
    let hint = |push_throttle| {
        let facts = Facts { settings: EffectiveSettings { push_throttle, ..<_>::default() }, ..facts() };
        let found = found(&facts, HEALTHY, &waits);
        assert_eq!(found.iter().map(|check| check.id).collect::<Vec<_>>(), ["throttle"]);
        found[0].hint.clone()
    };
    assert!(hint(100).contains("PILOT_PUSH_THROTTLE=200"));
    assert!(hint(150).contains("PILOT_PUSH_THROTTLE=200"));
    assert!(hint(200).contains("sharding") && !hint(200).contains("PILOT_PUSH_THROTTLE="));
}

#[test]
fn debounce_is_raised_from_the_defaults_where_rebuilds_are_frequent() {
    let frequent = format!("{HEALTHY}pilot_push_context_recompute_count 40\n");
    let ids = |after, max| {
        let settings = EffectiveSettings { debounce_after_ms: after, debounce_max_ms: max, ..<_>::default() };
        found(&Facts { settings, ..facts() }, HEALTHY, &frequent).iter().map(|it| it.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(100, 10_000), ["debounce"]);
    assert_eq!(ids(300, 10_000), ["debounce"]);
    assert_eq!(ids(300, 15_000), [""; 0]);
    let rollout = format!("{frequent}pilot_k8s_reg_events{{type=\"Pods\"}} 50\n");
    assert_eq!(found(&facts(), HEALTHY, &rollout), []);
}

#[test]
fn without_proxies_nothing_is_known_of_zombies() {
    let zombies = |expected| {
        let facts = Facts { expected, ..Facts::default() };
        found(&facts, HEALTHY, HEALTHY).into_iter().map(|check| (check.id, check.outcome)).collect::<Vec<_>>()
    };
    assert_eq!(zombies(0), [("zombies", CheckOutcome::Unknown)]);
    assert_eq!(zombies(5), [("zombies", CheckOutcome::Warning)]);
}

#[test]
fn replicas_make_one_list_of_the_worst_results() {
    let busy = HEALTHY.replace("process_cpu_seconds_total 10", "process_cpu_seconds_total 28");
    let checks = |after: &str| all(&facts(), &observed(HEALTHY, after));
    let list = combined(vec![("a".to_owned(), checks(HEALTHY)), ("b".to_owned(), checks(&busy))]);
    assert_eq!(list.len(), checks(HEALTHY).len());
    let cpu = list.iter().find(|check| check.id == "cpu").unwrap();
    assert_eq!((cpu.replica.as_str(), cpu.outcome), ("b", CheckOutcome::Warning));
    let zombies = list.iter().find(|check| check.id == "zombies").unwrap();
    assert_eq!(zombies.replica, "", "the mesh is one");
}

#[test]
fn the_key_that_signs_is_judged() {
    let with = |key: &str| Facts { signing_key: key.to_owned(), ..facts() };
    assert_eq!(found(&with("P-256"), HEALTHY, HEALTHY), []);
    assert_eq!(found(&with("RSA-3072"), HEALTHY, HEALTHY)[0].id, "key");
}

/// As measured: who renews at which part of a lifetime is not ours to know.
#[test]
fn certificate_load_is_what_was_signed() {
    let signed = |count: u32| {
        let facts = Facts { proxies: 100_000, ..facts() };
        found(&facts, HEALTHY, &format!("{HEALTHY}citadel_server_csr_count {count}\n"))
    };
    assert_eq!(signed(5), []);
    let [check] = &signed(35)[..] else { panic!("no finding") };
    assert!(check.id == "signing" && check.what.starts_with("3.5 certificates a second"), "{}", check.what);
    assert!(check.hint.contains("PILOT_WORKLOAD_CERT_TTL=48h") && check.hint.contains("external authority"));
}
