//! The Secret `istio-ca-secret`: where the keys and certificates of a self-signed root are kept in a cluster, shared by all replicas and
//! by istiod. What a key or a certificate is, is not known here.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};
use sources::kube::{Client, Failure};

use crate::object;

/// Texts by name, all PEM.
pub type Material = BTreeMap<String, String>;

/// As it was read.
pub struct Shared {
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
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "istio.io/ca-root", "metadata": { "name": NAME },
            "stringData": own,
        });
        match object::create(&self.client, &self.all, &object).await {
            Ok(made) => shared(made),
            Err(failure) if object::is_conflict(&failure) => self.read().await?.ok_or(failure),
            Err(failure) => Err(failure),
        }
    }

    /// Puts another root in the place of the one that was read; not if somebody has changed it since.
    pub async fn replace(&self, read: &Shared, own: &Material) -> Result<Shared, Failure> {
        let mut object = read.object.clone();
        for name in NEEDED.iter().chain(&CHANGING) {
            match own.get(*name) {
                Some(text) => object["data"][name] = data_encoding::BASE64.encode(text.as_bytes()).into(),
                None => drop(object["data"].as_object_mut().and_then(|data| data.remove(*name))),
            }
        }
        shared(object::replace(&self.client, &format!("{}/{NAME}", self.all), &object).await?)
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

fn shared(object: Value) -> Result<Shared, Failure> {
    let text = |key: &str| {
        let encoded = object["data"][key].as_str().unwrap_or_default();
        let bytes = data_encoding::BASE64.decode(encoded.as_bytes()).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let mut material = Material::new();
    for name in NEEDED {
        let text =
            text(name).ok_or_else(|| Failure::Unreadable(format!("Secret {NAME} has no {name} that is a text")))?;
        material.insert(name.to_owned(), text);
    }
    material.extend(CHANGING.into_iter().filter_map(|name| Some((name.to_owned(), text(name)?))));
    Ok(Shared { object, material })
}
