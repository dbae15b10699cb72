//! The owner of our Leases: the service account that this server runs as. Kubernetes deletes them with it, so that nothing of them remains after
//! an uninstall.

use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError};
use tokio::sync::OnceCell;
use tracing::debug;

use crate::object;

pub struct LeaseOwner {
    client: KubeClient,
    namespace: String,
    /// As an entry of `ownerReferences`. `None`: we are no service account of the namespace of our Leases.
    reference: OnceCell<Option<Value>>,
}

impl LeaseOwner {
    /// `namespace`: that of the Leases; an owner in another one does not count.
    pub fn new(client: KubeClient, namespace: &str) -> LeaseOwner {
        LeaseOwner { client, namespace: namespace.to_owned(), reference: OnceCell::new() }
    }

    /// Asks the API server who we are, once. Every user may ask that.
    pub(crate) async fn reference(&self) -> Option<Value> {
        let asked = self.reference.get_or_try_init(|| self.ask()).await;
        let failed =
            |failure: RequestError| debug!(%failure, "cannot ask for our service account; our Leases have no owner");
        asked.map_err(failed).ok().cloned().flatten()
    }

    async fn ask(&self) -> Result<Option<Value>, RequestError> {
        let review = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let answer = object::create(&self.client, "/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await?;
        Ok(owner_reference(&answer["status"]["userInfo"], &self.namespace))
    }
}

fn owner_reference(user: &Value, namespace: &str) -> Option<Value> {
    let account = user["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let name = account.strip_prefix(namespace)?.strip_prefix(':')?;
    let uid = user["uid"].as_str().filter(|uid| !uid.is_empty())?;
    Some(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": name, "uid": uid }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_account_of_the_same_namespace_can_own() {
        let owner = |name: &str| owner_reference(&json!({ "username": name, "uid": "u" }), "istio-system");
        let expected = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "name": "istiod", "uid": "u" });
        assert_eq!(owner("system:serviceaccount:istio-system:istiod"), Some(expected));
        assert_eq!(owner("system:serviceaccount:istio-system-2:istiod"), None);
        assert_eq!(owner("kubernetes-admin"), None);
    }
}
