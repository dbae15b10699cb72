//! Whom an API server trusts when it asks our webhook: the `caBundle` of every ValidatingWebhookConfiguration with our revision's label.

use std::time::Duration;

use serde_json::Value;
use sources::kube::{Client, Failure};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const LOOK: Duration = Duration::from_secs(5);

pub struct WebhookBundle {
    pub client: Client,
    /// Empty: `default`.
    pub revision: String,
    pub leads: Leadership,
}

impl WebhookBundle {
    /// Until nobody leads any more. `roots`: what is to be trusted now, as PEM.
    pub async fn follow(self, roots: impl Fn() -> String + Send) {
        let mut last = String::new();
        while !self.leads.is_over() {
            sleep(LOOK).await;
            let said = match self.look(&roots()).await {
                Ok(()) => String::new(),
                Err(failure) => failure.to_string(),
            };
            if !said.is_empty() && said != last {
                warn!(
                    problem = said,
                    "the certificate of the webhook could not be told to the API server; it is tried again"
                );
            }
            last = said;
        }
    }

    async fn look(&self, roots: &str) -> Result<(), Failure> {
        if !self.leads.is_held() {
            return Ok(());
        }
        let revision = if self.revision.is_empty() { "default" } else { &self.revision };
        let listed = object::get(&self.client, &format!("{PATH}?labelSelector=istio.io%2Frev%3D{revision}")).await?;
        let bundle = data_encoding::BASE64.encode(roots.as_bytes());
        for mut found in listed.as_ref().and_then(|list| list["items"].as_array()).cloned().unwrap_or_default() {
            if !trusts_otherwise(&mut found, &bundle) {
                continue;
            }
            let name = found["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let path = format!("{PATH}/{name}");
            let Some(written) = self.leads.write(object::replace(&self.client, &path, &found)).await else {
                return Ok(());
            };
            match written {
                Ok(_) => info!(name, "the webhook's configuration trusts the roots of the mesh"),
                // Somebody changed it meanwhile; the next look sees what they wrote.
                Err(failure) if object::is_conflict(&failure) => debug!(name, "the webhook's configuration changed"),
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

/// Puts the bundle in; whether that changed anything.
fn trusts_otherwise(configuration: &mut Value, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        let held = &mut webhook["clientConfig"]["caBundle"];
        if held != bundle {
            *held = bundle.into();
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_bundle_that_differs_is_written() {
        let mut found =
            json!({ "webhooks": [{ "clientConfig": { "url": "u" } }, { "clientConfig": { "caBundle": "b" } }] });
        assert!(trusts_otherwise(&mut found, "b"));
        assert!(!trusts_otherwise(&mut found, "b"), "{found}");
        assert!(!trusts_otherwise(&mut json!({}), "b"));
    }
}
