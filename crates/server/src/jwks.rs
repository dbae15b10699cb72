//! The source of token issuers' JSON Web Key Sets: the networks it may reach, the roots it trusts, its metrics.

use std::sync::Arc;

use anyhow::{Context, Result};
use config::store::Snapshot;
use sources::jwks::{self, JwksClient, KeyRequests};
use tokio::sync::watch;

use crate::metrics::Metrics;
use crate::settings::JwksSettings;

/// Certificates that are trusted besides the system's, as in istiod's image.
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

pub(crate) fn source(
    settings: JwksSettings,
    requests: watch::Receiver<KeyRequests>,
    objects: watch::Receiver<Arc<Snapshot>>,
    metrics: &Arc<Metrics>,
) -> Result<jwks::JwksFetcher> {
    let JwksSettings { guard, schedule } = settings;
    let extra = std::fs::read(EXTRA_ROOTS).unwrap_or_default();
    let tls = jwks::tls(&extra).context("cannot set up TLS for fetching keys")?;
    let counted = metrics.clone();
    let count = move |succeeded: bool| {
        if succeeded { counted.jwks_fetches.inc() } else { counted.jwks_fetch_failures.inc() }
    };
    Ok(jwks::JwksFetcher::new(JwksClient::new(guard, tls, objects), schedule, requests, count))
}
