//! What rules do to real requests: a client and three servers with sidecars, each in a network namespace of its own, over mutual TLS.
//! The tests take turns in one mesh and edit its folder; each leaves its servers as it found them.

mod app;
mod rules;
mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::http_client::HttpResponse;
use testkit::say;
use testkit::wait::eventually;

use shared::{OUTSIDE, Turn, shared};

/// One test in the mesh: reports what it proved, or fails with the log of the mesh.
fn in_turn(what: &str, scenario: impl AsyncFnOnce(&mut Turn<'_>) -> Result<String>) {
    let Some(mesh) = shared() else { return };
    let mut turn = Turn::take(&mesh);
    let result = mesh.runtime.block_on(async { scenario(&mut turn).await });
    let proved = result.unwrap_or_else(|e| panic!("{what}: {e:#}\n{}", turn.logs()));
    say(&format!("traffic: {what}: {proved}"));
}

fn by_server(answers: &[HttpResponse]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for answer in answers {
        *counts.entry(answer.body.as_str()).or_insert(0) += 1;
    }
    counts
}

fn only_from(answers: &[HttpResponse], servers: &[&str]) -> Result<()> {
    let strange = answers.iter().find(|answer| answer.status != 200 || !servers.contains(&answer.body.as_str()));
    ensure!(strange.is_none(), "want only 200 from {servers:?}, got {strange:?} among {:?}", by_server(answers));
    Ok(())
}

#[test]
fn weights_are_kept() {
    in_turn("weights", async |turn| {
        turn.apply(&rules::weights()).await?;
        let answers = turn.many(turn.ask("/"), 10_000).await?;
        only_from(&answers, &["web-1", "web-2"])?;
        let share = by_server(&answers).get("web-2").copied().unwrap_or_default() * 100;
        ensure!((17 * 10_000..=23 * 10_000).contains(&share), "want 20 % +- 3 from v2: {:?}", by_server(&answers));
        Ok(format!("20 % of 10000 asked for, {:.1} % got", share as f64 / 10_000.0))
    });
}

#[test]
fn failed_requests_are_tried_again() {
    in_turn("retries", async |turn| {
        turn.apply(&rules::plain("one-try", "retries: {attempts: 0}")).await?;
        let failed = turn.one(turn.ask("/flaky/1")).await?;
        ensure!(failed.status == 500, "the first try must fail without retries: {failed:?}");
        turn.apply(&rules::plain("three-tries", "retries: {attempts: 3, retryOn: 5xx}")).await?;
        let answer = turn.one(turn.ask("/flaky/2")).await?;
        ensure!(answer.status == 200, "{answer:?}");
        let tries = turn.seen("/flaky/2");
        ensure!(tries == 3, "the servers saw {tries} tries of a request that succeeds at the third");
        Ok("a request that fails twice succeeds".to_owned())
    });
}

#[test]
fn slow_answers_are_given_up() {
    in_turn("timeout", async |turn| {
        turn.apply(&rules::plain("short", "timeout: 300ms")).await?;
        let answer = turn.one(turn.ask("/slow")).await?;
        ensure!(answer.status == 504, "{answer:?}");
        ensure!(answer.took.as_millis() >= 250, "gave up after {:?}, want 300 ms", answer.took);
        Ok(format!("504 after {} ms of 300", answer.took.as_millis()))
    });
}

/// Requests that a client's sidecar has delayed.
const DELAYS: &str = r"fault\.delays_injected$";

#[test]
fn faults_are_injected_where_they_were_asked_for() {
    in_turn("fault", async |turn| {
        turn.apply(&rules::faults()).await?;
        let plain = turn.many(turn.ask("/"), 20).await?;
        ensure!(plain.iter().all(|answer| answer.status == 200), "{plain:?}");
        ensure!(turn.count(DELAYS).await? == 0, "requests without the header are delayed");
        let late = turn.one(turn.ask("/").with("x-fault", "delay")).await?;
        // Envoy's timers count in whole milliseconds and may end within the last of them.
        ensure!(late.status == 200 && late.took >= Duration::from_millis(495), "{late:?}");
        ensure!(turn.count(DELAYS).await? == 1, "Envoy did not count the delay");
        let before = turn.seen("/abort");
        let aborted = turn.one(turn.ask("/abort").with("x-fault", "abort")).await?;
        ensure!(aborted.status == 418 && turn.seen("/abort") == before, "an aborted request goes nowhere: {aborted:?}");
        let half = turn.many(turn.ask("/").with("x-fault", "half"), 1000).await?;
        let aborted = half.iter().filter(|answer| answer.status == 418).count();
        ensure!((430..=570).contains(&aborted), "{aborted} of 1000 aborted, want half");
        Ok(format!("a delay of {} ms of 500, an abort, {aborted} of 1000 where half are", late.took.as_millis()))
    });
}

/// As istiod asks Envoy to, the copies keep their host.
#[test]
fn mirrored_requests_arrive_twice() {
    in_turn("mirror", async |turn| {
        turn.apply(&rules::mirror()).await?;
        let answers = turn.many(turn.ask("/mirrored"), 50).await?;
        only_from(&answers, &["web-1"])?;
        turn.until("the copies to arrive", |turn| turn.seen_by("web-2", "/mirrored") == 50).await?;
        let hosts = turn.hosts("web-2", "/mirrored");
        ensure!(hosts.iter().all(|host| host == "web.shop"), "a copy is addressed as its original: {hosts:?}");
        Ok("50 requests, 50 copies, no answer of a copy".to_owned())
    });
}

#[test]
fn headers_choose_the_route() {
    in_turn("header match", async |turn| {
        turn.apply(&rules::header_match()).await?;
        only_from(&turn.many(turn.ask("/"), 50).await?, &["web-1"])?;
        only_from(&turn.many(turn.ask("/").with("x-version", "v2"), 50).await?, &["web-2"])?;
        only_from(&turn.many(turn.ask("/").with("x-version", "v2-canary"), 50).await?, &["web-2"])?;
        only_from(&turn.many(turn.ask("/").with("x-version", "v3"), 50).await?, &["web-1"])?;
        Ok("exact, prefix and neither".to_owned())
    });
}

#[test]
fn a_hashed_header_sticks_to_a_server() {
    in_turn("consistent hash", async |turn| {
        turn.apply(&rules::hashed()).await?;
        let mut used = BTreeSet::new();
        for user in 0..30 {
            let ask = turn.ask("/").with("x-user", format!("user-{user}"));
            let answers = turn.many(ask, 20).await?;
            only_from(&answers, &["web-1", "web-2", "web-3"])?;
            let servers = by_server(&answers);
            ensure!(servers.len() == 1, "user {user} was sent to {servers:?}");
            used.extend(servers.into_keys().map(str::to_owned));
        }
        ensure!(used.len() > 1, "30 users all went to {used:?}");
        Ok(format!("30 users stay with their server, {} servers in use", used.len()))
    });
}

#[test]
fn traffic_leaves_a_dead_zone() {
    in_turn("locality failover", async |turn| {
        turn.apply(&rules::failover()).await?;
        only_from(&turn.many(turn.ask("/"), 100).await?, &["web-1"]).context("while the client's zone lives")?;
        turn.kill("web-1");
        let mut failed = 0;
        eventually("traffic to leave a dead zone", async || {
            let answers = turn.many(turn.ask("/"), 20).await?;
            failed += answers.iter().filter(|answer| answer.status != 200).count();
            Ok(only_from(&answers, &["web-2"]).is_ok())
        })
        .await?;
        only_from(&turn.many(turn.ask("/"), 100).await?, &["web-2"]).context("the same region comes before another")?;
        turn.revive("web-1").await?;
        Ok(format!("the next zone of the region took over after {failed} failures"))
    });
}

#[test]
fn a_server_that_fails_is_left_out_for_a_while() {
    in_turn("outlier ejection", async |turn| {
        turn.apply(&rules::ejection()).await?;
        let all = turn.many(turn.ask("/"), 60).await?;
        ensure!(by_server(&all).len() == 3, "all servers are in use: {:?}", by_server(&all));
        turn.set_broken("web-2", true);
        turn.many(turn.ask("/"), 60).await?;
        let before = turn.seen_by("web-2", "/after");
        only_from(&turn.many(turn.ask("/after"), 60).await?, &["web-1", "web-3"])?;
        ensure!(turn.seen_by("web-2", "/after") == before, "an ejected server is not asked");
        turn.set_broken("web-2", false);
        eventually("the ejected server to come back", async || {
            Ok(turn.many(turn.ask("/"), 20).await?.iter().any(|answer| answer.body == "web-2"))
        })
        .await?;
        Ok("out after its errors, back after its time".to_owned())
    });
}

#[test]
fn unknown_hosts_are_blocked_by_registry_only() {
    in_turn("REGISTRY_ONLY", async |turn| {
        turn.apply(&rules::plain("open", "retries: {attempts: 0}")).await?;
        let open = turn.one(turn.ask_outside()).await?;
        ensure!(open.status == 200 && open.body == OUTSIDE, "without a Sidecar everything is open: {open:?}");
        turn.raw_outside().await.context("bytes pass too")?;
        turn.apply(&rules::registry_only("")).await?;
        let shut = turn.one(turn.ask_outside()).await?;
        ensure!(shut.status == 502, "an unknown host must be rejected: {shut:?}");
        ensure!(turn.raw_outside().await.is_err(), "bytes to an unknown address must get no answer");
        turn.apply(&rules::registry_only(rules::OUTSIDE_ENTRY)).await?;
        let known = turn.one(turn.ask_outside()).await?;
        ensure!(known.status == 200 && known.body == OUTSIDE, "a ServiceEntry opens the way: {known:?}");
        Ok("open, shut by a Sidecar, open again by a ServiceEntry".to_owned())
    });
}
