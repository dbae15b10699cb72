//! The load of signing certificates, and the key that signs.

use serde_json::json;

use super::{CERTIFICATES, CheckOutcome, DoctorCheck, ok};
use crate::doctor::facts::Facts;
use crate::doctor::sample::{Observation, SampleWindow};

const CERTIFICATES_PER_SECOND: f64 = 1.0;

/// As measured: pilot-agent renews at 50 % of a lifetime, `meltemi agent` at 80 %, and others as they like.
pub(super) fn load(facts: &Facts, seen: &Observation) -> DoctorCheck {
    let lifetime = facts.settings.lifetime_seconds as f64;
    let rate = |window: &SampleWindow<'_>| window.rate("citadel_server_csr_count");
    let shown = rate(&seen.whole());
    let check = ok(CERTIFICATES, "signing", format!("{shown:.2} certificates a second"));
    if !seen.sustained(|window| Some(rate(window) > CERTIFICATES_PER_SECOND)) {
        return check;
    }
    let what = format!("{shown:.1} certificates a second: {} proxies, each lasts {lifetime:.0} s", facts.proxies);
    check.found(
        CheckOutcome::Warning,
        what,
        "let them last longer (PILOT_WORKLOAD_CERT_TTL=48h), or let an external authority sign (docs/operating.md)",
        json!({"perSecond": shown, "lifetimeSeconds": lifetime}),
    )
}

pub(super) fn key(facts: &Facts) -> DoctorCheck {
    let key = &facts.signing_key;
    let what = if key.is_empty() { "this server signs nothing".to_owned() } else { format!("a {key} key signs") };
    let check = ok(CERTIFICATES, "key", what);
    if !key.starts_with("RSA") {
        return check;
    }
    let hint = "ECDSA P-256 signs about ten times as fast: CITADEL_SELF_SIGNED_CA_KEY_TYPE=P-256 with the next root, or plug one in";
    check.found(CheckOutcome::Warning, format!("the CA signs with {key}"), hint, json!({"key": key}))
}
