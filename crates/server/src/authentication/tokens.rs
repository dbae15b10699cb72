//! The authenticator as the settings configure it: the issuers of accepted tokens, and how nodes are checked.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ca::{Issuer, TokenVerifier};
use controllers::TokenReviewer;
use xds::IdentityCheck;

use super::{CallerAuthenticator, WorkloadRegistry};
use crate::settings::{IdentitySettings, NO_STATE};

impl CallerAuthenticator {
    /// `reviews`: TokenReviews of an API server, for all other tokens.
    pub(crate) fn new(
        settings: &IdentitySettings,
        registry: WorkloadRegistry,
        metrics: Arc<ca::CaMetrics>,
        reviews: Option<TokenReviewer>,
    ) -> Result<Arc<CallerAuthenticator>> {
        Ok(Arc::new(CallerAuthenticator {
            registry,
            metrics,
            tokens: tokens(settings)?,
            reviews,
            rejections: xds::LogLimit::default(),
            trusted_gateways: settings.trusted_gateways.clone(),
            check: match settings {
                IdentitySettings { check: false, .. } => IdentityCheck::Off,
                IdentitySettings { strict: true, .. } => IdentityCheck::Strict,
                _ => IdentityCheck::Compatible,
            },
        }))
    }
}

fn tokens(settings: &IdentitySettings) -> Result<TokenVerifier> {
    let issuer = Issuer::open(settings.state.as_deref().context(NO_STATE)?)?;
    let mut rules = vec![issuer.rules()];
    if let Some(file) = &settings.jwks {
        rules.push(ca::TokenIssuer { issuer: String::new(), keys: jwks(file)? });
    }
    Ok(TokenVerifier { rules, audiences: settings.audiences.clone() })
}

fn jwks(file: &Path) -> Result<ca::JwkSet> {
    let text = std::fs::read_to_string(file).with_context(|| format!("--jwks {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("--jwks {}: not a JSON Web Key Set, like {{\"keys\": [..]}}", file.display()))
}
