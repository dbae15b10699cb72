//! When a status is written, and when not.

use serde_json::Value;

use super::*;

fn status(version: u64, generation: i64, conditions: &Value) -> ObjectStatus {
    ObjectStatus {
        version,
        generation,
        api_version: "networking.istio.io/v1".into(),
        revision: None,
        rejected: false,
        conditions: if conditions.is_null() { "".into() } else { conditions.to_string().into() },
    }
}

fn verdict(acknowledged: usize, holders: usize) -> Verdict {
    Verdict { acknowledged, holders, ..Verdict::default() }
}

fn current(verdict: &Verdict, generation: i64) -> Value {
    conditions(verdict, generation).merged_into("", jiff::Timestamp::UNIX_EPOCH)
}

fn conditions(verdict: &Verdict, generation: i64) -> Conditions {
    conditions_of(verdict, generation, Coverage::All)
}

fn conditions_of(verdict: &Verdict, generation: i64, coverage: Coverage) -> Conditions {
    Conditions::of(verdict, &status(1, generation, &Value::Null), coverage)
}

fn reconciled(verdict: &Verdict, coverage: Coverage) -> [String; 3] {
    let current = conditions_of(verdict, 1, coverage).merged_into("", jiff::Timestamp::UNIX_EPOCH);
    ["status", "reason", "message"].map(|key| current[1][key].as_str().unwrap_or_default().to_owned())
}

fn change(verdict: &Verdict, current: &Value) -> Change {
    conditions(verdict, 2).change(&current.to_string())
}

#[test]
fn only_differences_are_written() {
    let done = verdict(3, 3);
    assert_eq!(change(&done, &current(&done, 2)), Change::None);
    assert_eq!(change(&done, &current(&verdict(5, 5), 2)), Change::Count);
    assert_eq!(change(&verdict(0, 0), &current(&done, 2)), Change::Count);
    assert_eq!(change(&done, &current(&done, 1)), Change::More, "of an older generation");
    assert_eq!(change(&done, &current(&verdict(1, 3), 2)), Change::More, "what was waited for came");
    assert_eq!(change(&done, &json!([])), Change::More);
    let bad = Verdict { errors: vec!["no".into()], ..verdict(3, 3) };
    assert_eq!(change(&bad, &current(&done, 2)), Change::More);
    let rejected = Verdict { rejection: Some("a.b: no".into()), ..done.clone() };
    assert_eq!(change(&rejected, &current(&done, 2)), Change::More);
}

#[test]
fn an_object_that_proxies_use_now_is_no_longer_not_used_at_once() {
    let unused = current(&verdict(0, 0), 2);
    assert_eq!(change(&verdict(3, 3), &unused), Change::More);
    let mut state = WriteState::new(&status(1, 2, &Value::Null));
    assert!(state.is_due(&status(3, 2, &unused), &conditions(&verdict(3, 3), 2), COUNT_INTERVAL));
}

fn unreported() -> Coverage {
    Coverage::Unreported("b".into())
}

#[test]
fn nobody_claims_that_all_proxies_have_it_before_every_replica_has_reported() {
    let why = "replica b has not reported what its proxies have acknowledged";
    let nobody = "no connected proxy holds anything that was made from it";
    assert_eq!(reconciled(&verdict(0, 0), unreported()), ["Unknown", "OtherReplicas", &format!("{why}: {nobody}")]);
    let counted = "3 of 3 proxies have acknowledged it";
    assert_eq!(reconciled(&verdict(3, 3), unreported()), ["Unknown", "OtherReplicas", &format!("{why}: {counted}")]);
    assert_eq!(reconciled(&verdict(3, 3), Coverage::All), ["True", "Acknowledged", counted]);
    assert_eq!(reconciled(&verdict(0, 0), Coverage::All), ["True", "NotUsed", nobody]);
    assert_eq!(reconciled(&verdict(3, 3), Coverage::Unknown)[..2], ["Unknown", "ReplicasUnknown"]);
    assert_eq!(reconciled(&verdict(0, 0), Coverage::Unknown)[..2], ["Unknown", "ReplicasUnknown"]);
    let uncounted = Verdict { uncounted: true, ..verdict(0, 0) };
    assert_eq!(reconciled(&uncounted, Coverage::All)[..2], ["True", "Acknowledged"], "others may hold it");
}

#[test]
fn what_one_proxy_says_is_enough_for_false() {
    let rejected = Verdict { rejection: Some("a.b: no".into()), ..verdict(1, 2) };
    for coverage in [Coverage::All, unreported(), Coverage::Unknown] {
        assert_eq!(reconciled(&rejected, coverage.clone()), ["False", "Refused", "a.b: no"]);
        assert_eq!(reconciled(&verdict(1, 2), coverage)[..2], ["False", "Waiting"]);
    }
}

#[test]
fn an_object_that_proxies_begin_to_reject_gets_an_event_once() {
    let rejected = Verdict { rejection: Some("a.b: no".into()), ..verdict(1, 2) };
    let now = conditions(&rejected, 2);
    assert_eq!(now.new_rejection(""), Some("a.b: no"));
    assert_eq!(now.new_rejection(&current(&verdict(2, 2), 2).to_string()), Some("a.b: no"));
    assert_eq!(now.new_rejection(&current(&rejected, 1).to_string()), Some("a.b: no"), "another generation");
    assert_eq!(now.new_rejection(&current(&rejected, 2).to_string()), None);
    assert_eq!(conditions(&verdict(1, 2), 2).new_rejection(""), None);
    let id = ObjectId { kind: Kind::EnvoyFilter, namespace: "shop".into(), name: "lua".into() };
    let event = event::rejected(&id, "networking.istio.io/v1alpha3", "u-1", "a.b: no", jiff::Timestamp::UNIX_EPOCH);
    let object = &event["involvedObject"];
    assert_eq!((object["kind"].as_str(), object["uid"].as_str()), (Some("EnvoyFilter"), Some("u-1")));
    assert_eq!(event["metadata"], json!({ "generateName": "lua.", "namespace": "shop" }));
}

#[test]
fn a_replica_that_comes_or_goes_is_more_than_a_count() {
    let alone = current(&verdict(1, 1), 2);
    let beside = conditions_of(&verdict(1, 1), 2, unreported());
    let unknown = beside.merged_into("", jiff::Timestamp::UNIX_EPOCH).to_string();
    assert_eq!(beside.change(&alone.to_string()), Change::More);
    assert_eq!(conditions(&verdict(1, 1), 2).change(&unknown), Change::More);
    assert_eq!(conditions_of(&verdict(2, 2), 2, unreported()).change(&unknown), Change::Count);
    assert_eq!(beside.change(&unknown), Change::None);
}

#[test]
fn conditions_of_others_and_times_of_ours_stay() {
    let theirs = json!({ "type": "ZtunnelAccepted", "status": "True", "observedGeneration": "1", "x": [1] });
    let mut before = current(&verdict(0, 2), 1);
    before.as_array_mut().unwrap().insert(0, theirs.clone());
    let now = jiff::Timestamp::from_second(60).unwrap();
    let after = conditions(&verdict(2, 2), 2).merged_into(&before.to_string(), now);
    assert_eq!(after[0], theirs);
    let times = [&after[1], &after[2]].map(|it| it["lastTransitionTime"].as_str().unwrap());
    assert_eq!(times, ["1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"], "only Reconciled turned true: {after}");
    assert_eq!(after.as_array().unwrap().len(), 3);
}

#[test]
fn a_bad_object_says_why_in_bounds() {
    let text = "ü".repeat(5000);
    let bad = current(&Verdict { errors: vec![text], ..verdict(1, 1) }, 1);
    assert_eq!((bad[0]["status"].as_str(), bad[0]["reason"].as_str()), (Some("False"), Some("Invalid")));
    assert_eq!(bad[0]["message"].as_str().map(|it| it.chars().count()), Some(1003));
    assert_eq!(bad[1]["reason"], "Acknowledged", "it is in force all the same");
    let rejected = ObjectStatus { rejected: true, ..status(1, 1, &Value::Null) };
    let bad = Conditions::of(&verdict(1, 1), &rejected, unreported()).merged_into("", jiff::Timestamp::UNIX_EPOCH);
    assert_eq!((bad[1]["status"].as_str(), bad[1]["reason"].as_str()), (Some("False"), Some("NotAccepted")));
}

#[tokio::test(start_paused = true)]
async fn proxies_have_a_moment_before_status_reports_that_they_are_waited_for() {
    let mut state = WriteState::new(&status(1, 1, &Value::Null));
    let waiting = conditions(&verdict(0, 1), 1);
    assert!(!state.is_due(&status(1, 1, &Value::Null), &waiting, COUNT_INTERVAL));
    sleep(ACK_GRACE).await;
    assert!(state.is_due(&status(1, 1, &Value::Null), &waiting, COUNT_INTERVAL));
    assert!(state.is_due(&status(1, 1, &Value::Null), &conditions(&verdict(1, 1), 1), COUNT_INTERVAL));
    assert!(!state.is_due(&status(1, 1, &Value::Null), &waiting, COUNT_INTERVAL), "they have another moment");
}

/// Within 5 s of an ACK, with the time that a report of another replica takes.
#[tokio::test(start_paused = true)]
async fn an_ack_after_the_status_reports_that_it_is_pending_is_written_in_two_seconds() {
    let mut state = WriteState::new(&status(1, 1, &Value::Null));
    let (waiting, done) = (conditions(&verdict(0, 1), 1), conditions(&verdict(1, 1), 1));
    sleep(ACK_GRACE).await;
    state.record_write(7, waiting);
    let back = status(7, 1, &current(&verdict(0, 1), 1));
    assert!(!state.is_due(&back, &done, COUNT_INTERVAL));
    sleep(PENDING_INTERVAL).await;
    assert!(state.is_due(&back, &done, COUNT_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn kinds_that_may_not_be_written_are_named_in_one_line_and_left_alone() {
    let mut forbidden = ForbiddenKinds::default();
    for kind in [Kind::Gateway, Kind::Sidecar] {
        forbidden.add(kind, format!("cannot patch {kind}"));
    }
    assert_eq!(forbidden.report(), Some(("Gateway, Sidecar".to_owned(), "cannot patch Gateway".to_owned())));
    assert!(forbidden.has(Kind::Gateway) && !forbidden.has(Kind::ServiceEntry));
    sleep(FORBIDDEN_PAUSE).await;
    assert!(!forbidden.has(Kind::Gateway), "the role may be another by now");
    forbidden.add(Kind::Gateway, "cannot patch".to_owned());
    assert_eq!(forbidden.report(), None, "it was reported");
}

#[tokio::test(start_paused = true)]
async fn what_was_written_is_not_written_again_before_it_came_back() {
    let (mut state, done) = (WriteState::new(&status(1, 1, &Value::Null)), conditions(&verdict(1, 1), 1));
    state.record_write(7, done.clone());
    assert!(!state.is_due(&status(1, 1, &Value::Null), &done, COUNT_INTERVAL), "the watch is behind");
    assert!(!state.is_due(&status(7, 1, &current(&verdict(1, 1), 1)), &done, COUNT_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn outdated_conditions_are_replaced_at_once() {
    let done = verdict(1, 1);
    let rejected = Verdict { rejection: Some("a.b: no".into()), ..verdict(0, 1) };
    let mut state = WriteState::new(&status(1, 1, &Value::Null));
    state.record_write(7, conditions(&done, 1));
    let back = status(7, 1, &current(&done, 1));
    let behind = status(6, 1, &Value::Null);
    assert!(!state.is_due(&behind, &conditions(&rejected, 1), COUNT_INTERVAL), "the watch is behind");
    assert!(state.is_due(&back, &conditions(&rejected, 1), COUNT_INTERVAL));
    assert!(state.is_due(&back, &conditions_of(&done, 1, Coverage::Unknown), COUNT_INTERVAL));
    let waiting = conditions(&verdict(0, 1), 1);
    assert!(!state.is_due(&back, &waiting, COUNT_INTERVAL), "proxies are behind after every push");
    sleep(ACK_GRACE).await;
    assert!(state.is_due(&back, &waiting, COUNT_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn reverted_writes_back_off() {
    let (mut state, done) = (WriteState::new(&status(1, 1, &Value::Null)), conditions(&verdict(1, 1), 1));
    let (start, mut writes) = (Instant::now(), 0);
    let mut version = 1;
    while start.elapsed() < Duration::from_secs(3600) {
        version += 2;
        if state.is_due(&status(version, 1, &Value::Null), &done, COUNT_INTERVAL) {
            state.record_write(version + 1, done.clone());
            writes += 1;
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert!((5..15).contains(&writes), "{writes} writes in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_number_alone_waits_for_minutes() {
    let (mut state, now) = (WriteState::new(&status(1, 1, &Value::Null)), conditions(&verdict(2, 2), 1));
    let before = status(3, 1, &current(&verdict(1, 1), 1));
    assert!(!state.is_due(&before, &now, COUNT_INTERVAL));
    sleep(COUNT_INTERVAL).await;
    assert!(state.is_due(&before, &now, COUNT_INTERVAL));
}

#[tokio::test(start_paused = true)]
async fn what_is_there_is_not_compared_again_until_it_changes() {
    let (mut state, done) = (WriteState::new(&status(1, 1, &Value::Null)), conditions(&verdict(1, 1), 1));
    let there = status(7, 1, &current(&verdict(1, 1), 1));
    assert!(!state.is_due(&there, &done, COUNT_INTERVAL) && !state.is_due(&there, &done, COUNT_INTERVAL));
    // Another version, from which somebody removed them.
    assert!(state.is_due(&status(8, 1, &Value::Null), &done, COUNT_INTERVAL));
    assert!(!state.is_due(&there, &done, COUNT_INTERVAL));
    assert!(state.is_due(
        &there,
        &conditions(&Verdict { errors: vec!["no".into()], ..verdict(1, 1) }, 1),
        COUNT_INTERVAL
    ));
}
