//! Credentials that Gateways name (`credentialName`): parsing of SDS resource names, who may read a credential, and where it is stored.
//! Certificates are not parsed here.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::kind::Kind;
use config::kinds::gateway::{ServerTlsMode, ServerTlsSettings};
use config::meta::Meta;
use config::store::Name;
use thiserror::Error;

use crate::gateway::MergedGateway;
use crate::mesh::Mesh;

/// Suffix of the name of a Secret that holds CA certificates only.
const CA_SUFFIX: &str = "-cacert";

/// The resource name of a secret in SDS. A name that no Kubernetes object can have is invalid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialName {
    store: CredentialStore,
    /// `None`: the reader's namespace.
    namespace: Option<String>,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum CredentialStore {
    /// A Secret of the reader's namespace.
    Kubernetes,
    /// A Secret that a Gateway of the reader's namespace names.
    Gateway,
    /// CA certificates only, which are public.
    ConfigMap,
}

const STORES: [(CredentialStore, &str); 3] = [
    (CredentialStore::Kubernetes, "kubernetes://"),
    (CredentialStore::Gateway, "kubernetes-gateway://"),
    (CredentialStore::ConfigMap, "configmap://"),
];

#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{0:?} names no credential; it is kubernetes://[NAMESPACE/]NAME, kubernetes-gateway://NAMESPACE/NAME or configmap://NAMESPACE/NAME"
)]
pub struct InvalidCredentialName(String);

impl FromStr for CredentialName {
    type Err = InvalidCredentialName;

    fn from_str(text: &str) -> Result<Self, InvalidCredentialName> {
        // Untrusted names are truncated before they reach an error text.
        let none = || InvalidCredentialName(text.chars().take(100).collect());
        let (store, rest) =
            STORES.iter().find_map(|(store, prefix)| Some((*store, text.strip_prefix(prefix)?))).ok_or_else(none)?;
        let (namespace, name) = match rest.split_once('/') {
            Some((namespace, name)) => (Some(namespace), name),
            None if store == CredentialStore::Kubernetes => (None, rest),
            None => return Err(none()),
        };
        if !is_object_name(name) || !namespace.is_none_or(is_object_name) {
            return Err(none());
        }
        Ok(Self { store, namespace: namespace.map(str::to_owned), name: name.to_owned() })
    }
}

impl fmt::Display for CredentialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = STORES.iter().find(|(store, _)| *store == self.store).map_or("", |(_, prefix)| prefix);
        match &self.namespace {
            Some(namespace) => write!(f, "{prefix}{namespace}/{}", self.name),
            None => write!(f, "{prefix}{}", self.name),
        }
    }
}

/// A valid Kubernetes object name.
fn is_object_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    text.len() <= 253 && text.bytes().all(allowed) && edge(text.bytes().next()) && edge(text.bytes().last())
}

/// A proxy with an authenticated identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CredentialReader {
    pub namespace: Arc<str>,
    pub service_account: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CredentialDenied {
    #[error("it is of another namespace")]
    OtherNamespace,
    #[error("the service account may not read secrets of its namespace")]
    NotAllowed,
    #[error("no Gateway of the namespace names it")]
    Unverified,
}

impl CredentialName {
    /// `lists`: whether the service account may read the Secrets of its namespace; called only where that decides. Authorization runs for every
    /// reader before any lookup, so that no cached credential reaches a reader that may not have it.
    pub fn authorize(
        &self,
        reader: &CredentialReader,
        gateway: &MergedGateway,
        lists: impl FnOnce(&CredentialReader) -> bool,
    ) -> Result<(), CredentialDenied> {
        match self.store {
            CredentialStore::ConfigMap => Ok(()),
            CredentialStore::Gateway if gateway_credentials(gateway, &reader.namespace).contains(self) => Ok(()),
            CredentialStore::Gateway => Err(CredentialDenied::Unverified),
            CredentialStore::Kubernetes if self.is_foreign(reader) => Err(CredentialDenied::OtherNamespace),
            // CA certificates are public.
            CredentialStore::Kubernetes if self.is_authority() || lists(reader) => Ok(()),
            CredentialStore::Kubernetes => Err(CredentialDenied::NotAllowed),
        }
    }

    fn namespace<'a>(&'a self, reader: &'a CredentialReader) -> &'a str {
        self.namespace.as_deref().unwrap_or(&reader.namespace)
    }

    /// The credential that a Gateway server refers to. `None`: not one that a Secret holds.
    pub(crate) fn of_server(text: &str) -> Option<Self> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("kubernetes://{text}") };
        whole.parse().ok()
    }

    /// It is a Secret of another namespace than the reader's.
    pub(crate) fn is_foreign(&self, reader: &CredentialReader) -> bool {
        self.store == CredentialStore::Kubernetes && self.namespace(reader) != &*reader.namespace
    }

    /// Objects that may hold this credential. CA certificates may be in the Secret of the key or in one of their own.
    pub fn objects(&self, reader: &CredentialReader) -> impl Iterator<Item = Name> {
        let names = std::iter::once(&*self.name).chain(self.base_name());
        names.map(move |name| Name::new(self.namespace(reader), name))
    }

    /// Gateways decide who may read it.
    pub fn is_gateway_scheme(&self) -> bool {
        self.store == CredentialStore::Gateway
    }

    /// The name without the `-cacert` suffix.
    fn base_name(&self) -> Option<&str> {
        self.name.strip_suffix(CA_SUFFIX)
    }

    fn is_authority(&self) -> bool {
        self.store == CredentialStore::ConfigMap || self.name.ends_with(CA_SUFFIX)
    }
}

/// Credentials that Gateways of the proxy's own namespace refer to there: pod, Secret and Gateway have the same owner.
fn gateway_credentials(gateway: &MergedGateway, namespace: &str) -> BTreeSet<CredentialName> {
    let servers = gateway.ports.iter().flat_map(|port| &port.servers);
    let own = servers.filter(|server| *server.made_from.namespace == *namespace);
    let named = own.filter_map(|server| server.tls.as_ref()).flat_map(references);
    named.filter(|name| name.namespace.as_deref() == Some(namespace)).collect()
}

fn references(tls: &ServerTlsSettings) -> Vec<CredentialName> {
    let one = Some(&tls.credential_name).filter(|_| tls.credential_names.is_empty());
    let names: Vec<CredentialName> =
        tls.credential_names.iter().chain(one).filter_map(|name| name.parse().ok()).collect();
    let mutual = matches!(tls.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual);
    let authorities = names
        .iter()
        .filter(|_| mutual)
        .map(|name| CredentialName { name: format!("{}{CA_SUFFIX}", name.name), ..name.clone() });
    let authorities: Vec<_> = authorities.collect();
    names.into_iter().chain(authorities).collect()
}

/// The content of a credential, and the object that holds it.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedCredential<'a> {
    pub object: ObjectId,
    /// Names of its entries that hold the credential.
    pub fields: &'static str,
    pub credential: Credential<'a>,
}

/// Bytes as stored, not yet parsed.
#[derive(PartialEq, Eq)]
pub enum Credential<'a> {
    Pair { chain: &'a [u8], key: &'a [u8], staple: Option<&'a [u8]> },
    Authorities { roots: &'a [u8], revoked: Option<&'a [u8]> },
}

/// Debug output leaves private keys out.
impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pair { .. } => "Pair(..)",
            Self::Authorities { .. } => "Authorities(..)",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CredentialMissing {
    #[error("there is no {kind} {namespace}/{name}; write it, or change the name")]
    Object { kind: &'static str, namespace: String, name: String },
    #[error("{kind} {namespace}/{name} has no {keys} with content")]
    Keys { kind: &'static str, namespace: String, name: String, keys: &'static str },
}

impl Mesh {
    /// The credential of this name, for a reader that is authorized.
    pub fn credential(
        &self,
        wanted: &CredentialName,
        reader: &CredentialReader,
    ) -> Result<ResolvedCredential<'_>, CredentialMissing> {
        let namespace = wanted.namespace(reader);
        if wanted.store == CredentialStore::ConfigMap {
            return self.config_map_authorities(wanted, namespace);
        }
        let secret = |name: &str| self.objects.secrets.get(&Name::new(namespace, name));
        // A compound Secret holds the CA certificate beside the key.
        let found = secret(&wanted.name).or_else(|| secret(wanted.base_name()?));
        let object = found.ok_or_else(|| wanted.absent(Kind::Secret, namespace))?;
        let value = |key: &str| object.spec.data.get(key).map(|value| value.as_slice()).filter(|it| !it.is_empty());
        let made = if wanted.is_authority() { authorities(value) } else { pair(value) };
        let keys = if wanted.is_authority() { "cacert or ca.crt" } else { "cert and key, or tls.crt and tls.key," };
        let (fields, credential) = made.ok_or_else(|| wanted.empty(Kind::Secret, namespace, keys))?;
        Ok(ResolvedCredential { object: object_id(Kind::Secret, &object.meta), fields, credential })
    }

    fn config_map_authorities(
        &self,
        wanted: &CredentialName,
        namespace: &str,
    ) -> Result<ResolvedCredential<'_>, CredentialMissing> {
        let name = wanted.base_name().unwrap_or(&wanted.name);
        let object = self.objects.config_maps.get(&Name::new(namespace, name));
        let object = object.ok_or_else(|| wanted.absent(Kind::ConfigMap, namespace))?;
        let value = |key: &str| object.spec.data.get(key).map(String::as_bytes).filter(|value| !value.is_empty());
        let found = authorities(value);
        let (fields, credential) = found.ok_or_else(|| wanted.empty(Kind::ConfigMap, namespace, "cacert or ca.crt"))?;
        Ok(ResolvedCredential { object: object_id(Kind::ConfigMap, &object.meta), fields, credential })
    }
}

impl CredentialName {
    fn absent(&self, kind: Kind, namespace: &str) -> CredentialMissing {
        CredentialMissing::Object { kind: kind.name(), namespace: namespace.to_owned(), name: self.name.clone() }
    }

    fn empty(&self, kind: Kind, namespace: &str, keys: &'static str) -> CredentialMissing {
        CredentialMissing::Keys { kind: kind.name(), namespace: namespace.to_owned(), name: self.name.clone(), keys }
    }
}

fn object_id(kind: Kind, meta: &Meta) -> ObjectId {
    ObjectId { kind, namespace: meta.namespace.clone(), name: meta.name.clone() }
}

/// The names of the entries, and what they hold. Keys of generic Secrets take precedence over those of TLS Secrets.
fn pair<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) -> Option<(&'static str, Credential<'a>)> {
    let both = |chain: &str, key: &str| Some((value(chain)?, value(key)?));
    if let Some((chain, key)) = both("cert", "key") {
        return Some(("data.cert and data.key", Credential::Pair { chain, key, staple: None }));
    }
    let (chain, key) = both("tls.crt", "tls.key")?;
    Some(("data[tls.crt] and data[tls.key]", Credential::Pair { chain, key, staple: value("tls.ocsp-staple") }))
}

fn authorities<'a>(value: impl Fn(&str) -> Option<&'a [u8]>) -> Option<(&'static str, Credential<'a>)> {
    let with =
        |roots: &str, revoked: &str| Some(Credential::Authorities { roots: value(roots)?, revoked: value(revoked) });
    let generic = with("cacert", "crl").map(|found| ("data.cacert", found));
    generic.or_else(|| with("ca.crt", "ca.crl").map(|found| ("data[ca.crt]", found)))
}

#[cfg(test)]
mod tests;
