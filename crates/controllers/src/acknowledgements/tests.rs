//! What the proxies of several replicas say of one object together.

use config::kind::Kind;
use config::store::ObjectStatus;

use super::*;

fn id(name: &str) -> ObjectId {
    ObjectId { kind: Kind::VirtualService, namespace: "shop".into(), name: name.into() }
}

fn snapshot(names: &[(&str, u64)]) -> Snapshot {
    let mut snapshot = Snapshot::empty();
    for (name, version) in names {
        let status = ObjectStatus {
            version: *version,
            generation: 1,
            api_version: "networking.istio.io/v1".into(),
            revision: None,
            rejected: false,
            conditions: "".into(),
        };
        snapshot.object_statuses.insert(id(name), Arc::new(status));
    }
    snapshot
}

fn verdict(acknowledged: usize, holders: usize) -> Verdict {
    Verdict { acknowledged, holders, ..Verdict::default() }
}

fn report(of: &[(&str, Verdict)], version: u64, budget: usize) -> AckReport {
    let verdicts: Verdicts = of.iter().map(|(name, verdict)| (id(name), verdict.clone())).collect();
    let names: Vec<_> = of.iter().map(|(name, _)| (*name, version)).collect();
    AckReport::new(&snapshot(&names), &verdicts, BTreeSet::new(), budget)
}

fn others(reports: Vec<Option<AckReport>>) -> OtherReports {
    let replica = |n: usize| ServingReplica { name: format!("r{n}"), revision: "default".into(), silent: false };
    OtherReports(reports.into_iter().enumerate().map(|(n, report)| (replica(n), report)).collect())
}

#[test]
fn proxies_of_all_replicas_are_counted() {
    let all =
        others(vec![Some(report(&[("a", verdict(2, 3))], 7, 1000)), Some(report(&[("a", verdict(1, 1))], 9, 1000))]);
    assert_eq!(all.combine(&verdict(4, 4), &id("a"), None, 7), (verdict(7, 8), Coverage::All));
    assert_eq!(all.combine(&verdict(4, 4), &id("a"), Some("canary"), 7), (verdict(4, 4), Coverage::All));
}

#[test]
fn a_rejection_at_another_replica_is_one() {
    let rejected = Verdict { rejection: Some("p.n: no".into()), ..verdict(0, 1) };
    let all = others(vec![Some(report(&[("a", rejected.clone())], 7, 1000))]);
    assert_eq!(all.combine(&verdict(0, 0), &id("a"), None, 7), (rejected, Coverage::All));
}

#[test]
fn a_replica_without_a_report_or_with_an_older_version_is_not_counted_on() {
    let unreported = |reports, version| others(reports).combine(&verdict(1, 1), &id("a"), None, version).1;
    let older = || Some(report(&[("a", verdict(1, 1))], 7, 1000));
    assert_eq!(unreported(vec![older()], 7), Coverage::All);
    assert_eq!(unreported(vec![older()], 8), Coverage::Unreported("r0".into()));
    assert_eq!(unreported(vec![older(), None], 7), Coverage::Unreported("r1".into()));
    let mut silent = others(vec![older()]);
    silent.0[0].0.silent = true;
    assert_eq!(silent.combine(&verdict(1, 1), &id("a"), None, 7).1, Coverage::Unreported("r0".into()));
}

#[test]
fn a_replica_that_does_not_read_a_namespace_has_nothing_to_report_of_it() {
    let shard = AckReport { namespaces: BTreeSet::from(["bank".into()]), ..AckReport::default() };
    assert_eq!(others(vec![Some(shard)]).combine(&verdict(1, 1), &id("a"), None, 7).1, Coverage::All);
}

#[test]
fn a_report_without_room_leaves_out_first_what_every_proxy_has() {
    let (done, behind) = (verdict(3, 3), verdict(0, 3));
    let both = [("a", done.clone()), ("b", behind.clone())];
    let small = report(&both, 7, 60);
    assert_eq!((small.detail, small.counts.len()), (Detail::Pending, 1));
    let all = others(vec![Some(small)]);
    let all_acked = Verdict { uncounted: true, ..verdict(1, 1) };
    assert_eq!(all.combine(&verdict(1, 1), &id("a"), None, 7), (all_acked, Coverage::All));
    assert_eq!(all.combine(&verdict(1, 1), &id("b"), None, 7), (verdict(1, 4), Coverage::All));
    let none = report(&both, 7, 10);
    assert_eq!((none.detail, none.counts.len()), (Detail::Truncated, 0));
    assert_eq!(
        others(vec![Some(none)]).combine(&verdict(1, 1), &id("a"), None, 7).1,
        Coverage::Unreported("r0".into())
    );
}

#[test]
fn a_report_of_thousands_of_objects_fits_into_an_annotation() {
    let names: Vec<String> = (0..20_000).map(|n| format!("virtual-service-{n}")).collect();
    let rejected = Verdict { rejection: Some("e".repeat(5000)), ..verdict(0, 9) };
    let of: Vec<_> = names.iter().map(|name| (name.as_str(), rejected.clone())).collect();
    let text = serde_json::to_string(&report(&of, u64::MAX, MAX_BYTES)).unwrap();
    assert!(text.len() <= MAX_REPORT_BYTES + 1000, "{}", text.len());
}
