//! The Secret `istio-ca-secret`: keys and certificates of a self-signed root, shared by all replicas and
//! with istiod. Keys and certificates are not parsed here.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use sources::kube::{KubeClient, RequestError};
use zeroize::{Zeroize, Zeroizing};

use crate::object;

/// PEM by name.
pub type CaSecretData = BTreeMap<String, Zeroizing<String>>;

/// The Secret as read.
pub struct CaSecretContent {
    /// Without the PEM data, so that there is one copy.
    object: Value,
    pub material: CaSecretData,
}

/// Debug output leaves private keys out.
impl fmt::Debug for CaSecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared(..)")
    }
}

const NAME: &str = "istio-ca-secret";
/// Both are required.
const REQUIRED: [&str; 2] = ["ca-cert.pem", "ca-key.pem"];
/// Those of a root rotation; istiod ignores them.
const ROTATION: [&str; 3] = ["next-cert.pem", "next-key.pem", "old-cert.pem"];

pub struct CaSecret {
    client: KubeClient,
    all: String,
}

impl CaSecret {
    pub fn new(client: KubeClient, namespace: &str) -> CaSecret {
        CaSecret { client, all: format!("/api/v1/namespaces/{namespace}/secrets") }
    }

    /// `None`: it does not exist yet.
    pub async fn read(&self) -> Result<Option<CaSecretContent>, RequestError> {
        let found = object::get(&self.client, &format!("{}/{NAME}", self.all)).await?;
        found.map(parse_content).transpose()
    }

    /// Creates it, unless another replica was first: then returns theirs.
    pub async fn share(&self, own: &CaSecretData) -> Result<CaSecretContent, RequestError> {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root", "metadata": { "name": NAME },
        });
        insert(&mut object, own);
        let created = object::create(&self.client, &self.all, &object).await;
        wipe(&mut object);
        match created {
            Ok(created) => parse_content(created),
            Err(failure) if object::is_conflict(&failure) => self.read().await?.ok_or(failure),
            Err(failure) => Err(failure),
        }
    }

    /// Replaces the root that was read; fails if it changed since.
    pub async fn replace(&self, read: &CaSecretContent, own: &CaSecretData) -> Result<CaSecretContent, RequestError> {
        let mut object = read.object.clone();
        insert(&mut object, own);
        let written = object::replace(&self.client, &format!("{}/{NAME}", self.all), &object).await;
        wipe(&mut object);
        parse_content(written?)
    }

    /// Another replica was first.
    pub fn is_conflict(failure: &RequestError) -> bool {
        object::is_conflict(failure)
    }
}

impl CaSecretContent {
    /// Not written since.
    pub fn is_same_version(&self, other: &CaSecretContent) -> bool {
        self.object["metadata"]["resourceVersion"] == other.object["metadata"]["resourceVersion"]
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    REQUIRED.into_iter().chain(ROTATION)
}

fn insert(object: &mut Value, own: &CaSecretData) {
    for (name, text) in names().filter_map(|name| Some((name, own.get(name)?))) {
        object["data"][name] = data_encoding::BASE64.encode(text.as_bytes()).into();
    }
}

/// Removes our data, and leaves other entries.
fn wipe(object: &mut Value) {
    names().for_each(|name| drop(take_entry(object, name)));
}

fn take_entry(object: &mut Value, name: &str) -> Option<Zeroizing<String>> {
    match object.get_mut("data")?.as_object_mut()?.remove(name)? {
        Value::String(text) => Some(Zeroizing::new(text)),
        _ => None,
    }
}

/// The decoded text of one entry, if it is valid.
fn text(encoded: &str) -> Option<Zeroizing<String>> {
    let bytes = data_encoding::BASE64.decode(encoded.as_bytes()).ok()?;
    match String::from_utf8(bytes) {
        Ok(text) => Some(Zeroizing::new(text)).filter(|text| !text.is_empty()),
        Err(error) => {
            error.into_bytes().zeroize();
            None
        }
    }
}

fn parse_content(mut object: Value) -> Result<CaSecretContent, RequestError> {
    let mut material = CaSecretData::new();
    for name in names() {
        match take_entry(&mut object, name).and_then(|encoded| text(&encoded)) {
            Some(text) => drop(material.insert(name.to_owned(), text)),
            None if REQUIRED.contains(&name) => {
                return Err(RequestError::Unreadable(format!(
                    "Secret {NAME} has no {name} that is a text; a root is {} and {}: restore both",
                    REQUIRED[0], REQUIRED[1]
                )));
            }
            None => {}
        }
    }
    Ok(CaSecretContent { object, material })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Value {
        json!({
            "metadata": { "name": NAME, "resourceVersion": "7" },
            "data": { "ca-cert.pem": "Y2VydA==", "ca-key.pem": "a2V5", "old-cert.pem": "b2xk", "other": "eA==" },
        })
    }

    #[test]
    fn replacing_the_root_keeps_foreign_entries() {
        let shared = parse_content(secret()).unwrap();
        assert_eq!(shared.material["ca-key.pem"].as_str(), "key");
        assert_eq!(shared.object["data"], json!({ "other": "eA==" }));
        let mut object = shared.object.clone();
        let mut own = shared.material.clone();
        own.remove("old-cert.pem");
        insert(&mut object, &own);
        assert_eq!(
            object["data"],
            json!({ "ca-cert.pem": "Y2VydA==", "ca-key.pem": "a2V5", "other": "eA==" }),
            "what is no longer part of the root goes"
        );
        wipe(&mut object);
        assert_eq!(object, shared.object);
    }

    #[test]
    fn rejects_an_incomplete_root() {
        for name in REQUIRED {
            let mut half = secret();
            half["data"].as_object_mut().unwrap().remove(name);
            let error = parse_content(half).unwrap_err().to_string();
            assert!(REQUIRED.iter().all(|name| error.contains(name)), "{error}");
        }
    }
}
