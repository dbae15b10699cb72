//! The Secret `istio-ca-secret`: where the keys and certificates of a self-signed root are kept in a cluster, shared by all replicas and
//! by istiod. What a key or a certificate is, is not known here.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use zeroize::{Zeroize, Zeroizing};

use crate::object;

/// Texts by name, all PEM.
pub type Material = BTreeMap<String, Zeroizing<String>>;

/// As it was read.
pub struct Shared {
    /// Without the material, of which there is one copy.
    object: Value,
    pub material: Material,
}

/// Private keys are not printed.
impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared(..)")
    }
}

const NAME: &str = "istio-ca-secret";
/// Without these it is no root.
const NEEDED: [&str; 2] = ["ca-cert.pem", "ca-key.pem"];
/// Those of a root under change; istiod does not look at them.
const CHANGING: [&str; 3] = ["next-cert.pem", "next-key.pem", "old-cert.pem"];

pub struct AuthoritySecret {
    client: Client,
    all: String,
}

impl AuthoritySecret {
    pub fn new(client: Client, namespace: &str) -> AuthoritySecret {
        AuthoritySecret { client, all: format!("/api/v1/namespaces/{namespace}/secrets") }
    }

    /// `None`: there is none yet.
    pub async fn read(&self) -> Result<Option<Shared>, Failure> {
        let found = object::get(&self.client, &format!("{}/{NAME}", self.all)).await?;
        found.map(shared).transpose()
    }

    /// Makes it, unless somebody else was faster: then theirs holds.
    pub async fn share(&self, own: &Material) -> Result<Shared, Failure> {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root", "metadata": { "name": NAME },
        });
        insert(&mut object, own);
        let made = object::create(&self.client, &self.all, &object).await;
        wipe(&mut object);
        match made {
            Ok(made) => shared(made),
            Err(failure) if object::is_conflict(&failure) => self.read().await?.ok_or(failure),
            Err(failure) => Err(failure),
        }
    }

    /// Puts another root in the place of the one that was read; not if somebody has changed it since.
    pub async fn replace(&self, read: &Shared, own: &Material) -> Result<Shared, Failure> {
        let mut object = read.object.clone();
        insert(&mut object, own);
        let written = object::replace(&self.client, &format!("{}/{NAME}", self.all), &object).await;
        wipe(&mut object);
        shared(written?)
    }

    /// Somebody else was faster.
    pub fn is_conflict(failure: &Failure) -> bool {
        object::is_conflict(failure)
    }
}

impl Shared {
    /// Nobody has written since.
    pub fn is_same_version(&self, other: &Shared) -> bool {
        self.object["metadata"]["resourceVersion"] == other.object["metadata"]["resourceVersion"]
    }
}

fn names() -> impl Iterator<Item = &'static str> {
    NEEDED.into_iter().chain(CHANGING)
}

fn insert(object: &mut Value, own: &Material) {
    for (name, text) in names().filter_map(|name| Some((name, own.get(name)?))) {
        object["data"][name] = data_encoding::BASE64.encode(text.as_bytes()).into();
    }
}

/// Takes the material out, and what others put beside it stays.
fn wipe(object: &mut Value) {
    names().for_each(|name| drop(taken(object, name)));
}

fn taken(object: &mut Value, name: &str) -> Option<Zeroizing<String>> {
    match object.get_mut("data")?.as_object_mut()?.remove(name)? {
        Value::String(text) => Some(Zeroizing::new(text)),
        _ => None,
    }
}

/// The text of one entry, if it is one.
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

fn shared(mut object: Value) -> Result<Shared, Failure> {
    let mut material = Material::new();
    for name in names() {
        match taken(&mut object, name).and_then(|encoded| text(&encoded)) {
            Some(text) => drop(material.insert(name.to_owned(), text)),
            None if NEEDED.contains(&name) => {
                return Err(Failure::Unreadable(format!(
                    "Secret {NAME} has no {name} that is a text; a root is {} and {}: restore both",
                    NEEDED[0], NEEDED[1]
                )));
            }
            None => {}
        }
    }
    Ok(Shared { object, material })
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
    fn the_material_is_in_one_place_and_what_others_put_beside_it_stays() {
        let shared = shared(secret()).unwrap();
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
    fn half_a_root_is_none() {
        for name in NEEDED {
            let mut half = secret();
            half["data"].as_object_mut().unwrap().remove(name);
            let error = shared(half).unwrap_err().to_string();
            assert!(NEEDED.iter().all(|name| error.contains(name)), "{error}");
        }
    }
}
