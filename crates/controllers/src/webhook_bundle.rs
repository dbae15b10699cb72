//! The `caBundle` of every webhook configuration with our revision's label, by which the API server trusts our webhooks.

use std::time::Duration;

use serde_json::Value;
use sources::kube::{KubeClient, RequestError};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::leadership::Leadership;
use crate::object;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// How the names of injection webhooks end. Configurations with our label may hold webhooks of others.
const INJECTOR: &str = "sidecar-injector.istio.io";
const POLL_INTERVAL: Duration = Duration::from_secs(5);

pub struct WebhookBundle {
    pub client: KubeClient,
    /// Empty: `default`.
    pub revision: String,
    pub leads: Leadership,
    /// This control plane injects sidecars.
    pub injects: bool,
}

impl WebhookBundle {
    /// Runs until leadership can no longer be gained. `roots`: the current root certificates, as PEM.
    pub async fn follow(self, roots: impl Fn() -> String + Send) {
        let mut last = String::new();
        while !self.leads.is_over() {
            sleep(POLL_INTERVAL).await;
            let problem = match self.reconcile(&roots()).await {
                Ok(()) => String::new(),
                Err(failure) => failure.to_string(),
            };
            if !problem.is_empty() && problem != last {
                warn!(problem, "cannot update the caBundle of the webhook; retrying");
            }
            last = problem;
        }
    }

    async fn reconcile(&self, roots: &str) -> Result<(), RequestError> {
        if !self.leads.is_held() {
            return Ok(());
        }
        let bundle = data_encoding::BASE64.encode(roots.as_bytes());
        self.reconcile_kind(VALIDATING, "", &bundle).await?;
        if self.injects {
            self.reconcile_kind(MUTATING, INJECTOR, &bundle).await?;
        }
        Ok(())
    }

    /// `ending`: of the names of our webhooks.
    async fn reconcile_kind(&self, kind: &str, ending: &str, bundle: &str) -> Result<(), RequestError> {
        let revision = if self.revision.is_empty() { "default" } else { &self.revision };
        let listed = object::get(&self.client, &format!("{kind}?labelSelector=istio.io%2Frev%3D{revision}")).await?;
        for mut found in listed.as_ref().and_then(|list| list["items"].as_array()).cloned().unwrap_or_default() {
            if !set_bundle(&mut found, ending, bundle) {
                continue;
            }
            let name = found["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let path = format!("{kind}/{name}");
            let Some(written) = self.leads.write(object::replace(&self.client, &path, &found)).await else {
                return Ok(());
            };
            match written {
                Ok(_) => info!(name, "caBundle of the webhook updated"),
                // Changed meanwhile; the next look sees the other write.
                Err(failure) if object::is_conflict(&failure) => {
                    debug!(name, "webhook configuration changed meanwhile");
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

/// Sets the bundle of webhooks whose names end so; returns whether that changed anything.
fn set_bundle(configuration: &mut Value, ending: &str, bundle: &str) -> bool {
    let mut changed = false;
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        if !webhook["name"].as_str().unwrap_or_default().ends_with(ending) {
            continue;
        }
        let current = &mut webhook["clientConfig"]["caBundle"];
        if current != bundle {
            *current = bundle.into();
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
        assert!(set_bundle(&mut found, "", "b"));
        assert!(!set_bundle(&mut found, "", "b"), "{found}");
        assert!(!set_bundle(&mut json!({}), "", "b"));
    }

    #[test]
    fn webhooks_of_others_keep_their_bundle() {
        let webhook = |name: &str| json!({ "name": name, "clientConfig": { "caBundle": "a" } });
        let mut found =
            json!({ "webhooks": [webhook("rev.namespace.sidecar-injector.istio.io"), webhook("other.example.com")] });
        assert!(set_bundle(&mut found, INJECTOR, "b"));
        let bundles: Vec<_> =
            found["webhooks"].as_array().unwrap().iter().map(|it| &it["clientConfig"]["caBundle"]).collect();
        assert_eq!(bundles, ["b", "a"]);
    }
}
