//! The door as the settings ask for it: whose tokens are believed, and the objects that callers are compared with.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use ca::{Issuer, Tokens};
use controllers::Reviews;
use xds::IdentityCheck;

use super::{Door, Registry};
use crate::settings::{Identity, NO_STATE};

impl Door {
    /// `reviews`: an API server that knows more tokens.
    pub(crate) fn open(
        settings: &Identity,
        registry: Registry,
        metrics: Arc<ca::Metrics>,
        reviews: Option<Reviews>,
    ) -> Result<Arc<Door>> {
        Ok(Arc::new(Door {
            registry,
            metrics,
            tokens: tokens(settings)?,
            reviews,
            rejections: xds::LogLimit::default(),
            trusted_gateways: settings.trusted_gateways.clone(),
            check: match settings {
                Identity { check: false, .. } => IdentityCheck::Off,
                Identity { strict: true, .. } => IdentityCheck::Strict,
                _ => IdentityCheck::Compatible,
            },
        }))
    }
}

fn tokens(settings: &Identity) -> Result<Tokens> {
    let issuer = Issuer::open(settings.state.as_deref().context(NO_STATE)?)?;
    let mut rules = vec![issuer.rules()];
    if let Some(file) = &settings.jwks {
        rules.push(ca::TokenRules { issuer: String::new(), keys: jwks(file)? });
    }
    Ok(Tokens { rules, audiences: settings.audiences.clone() })
}

fn jwks(file: &Path) -> Result<ca::JwkSet> {
    let text = std::fs::read_to_string(file).with_context(|| format!("--jwks {}", file.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("--jwks {}: not a JSON Web Key Set, like {{\"keys\": [..]}}", file.display()))
}
