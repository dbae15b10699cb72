//! The source of token issuers' keys, wired: where it may go, whom it trusts, who counts its fetches.

use std::sync::Arc;

use anyhow::{Context, Result};
use sources::jwks::{self, Client, Wanted};
use tokio::sync::watch;

use crate::ops::metrics::Metrics;
use crate::settings::Keys;

/// Certificates that are trusted besides the system's, as in istiod's image.
const EXTRA_ROOTS: &str = "/cacerts/extra.pem";

pub(crate) fn source(settings: Keys, wanted: watch::Receiver<Wanted>, metrics: &Arc<Metrics>) -> Result<jwks::Keys> {
    let Keys { guard, schedule } = settings;
    let extra = std::fs::read(EXTRA_ROOTS).unwrap_or_default();
    let tls = jwks::tls(&extra).context("cannot set up TLS for fetching keys")?;
    let counted = metrics.clone();
    let told = move |succeeded: bool| {
        if succeeded { counted.keys_fetched.inc() } else { counted.keys_failed.inc() }
    };
    Ok(jwks::Keys::new(Client::new(guard, tls), schedule, wanted, told))
}
