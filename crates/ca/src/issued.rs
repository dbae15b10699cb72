//! Verification of a certificate from another signer against the request. The workload would use it whatever its content,
//! and others would trust it.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use rustls::{crypto::aws_lc_rs, pki_types::UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension, X509Extension},
    oid_registry::{OID_X509_COMMON_NAME, OID_X509_EXT_SUBJECT_ALT_NAME},
    prelude::FromDer,
};

use crate::{Certificate, PrivateKey, SignerRequest, authority::SKEW, der::general_names};

/// The expected content of a certificate.
struct Expected<'a> {
    public_key: &'a [u8],
    names: Names<'a>,
    /// Counted from now.
    lifetime: Duration,
    usages: &'static [Usage],
}

enum Names<'a> {
    /// Exactly this one.
    Uri(String),
    /// A subset of these.
    Hosts(&'a [String]),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Usage {
    Server,
    Client,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssuedMismatch {
    #[error("it gave no certificate")]
    Empty,
    #[error("the certificate cannot be read")]
    Form,
    #[error("the certificate is of another key than the request")]
    Key,
    #[error("the certificate names {0}, which was not asked for")]
    Name(String),
    #[error("the certificate has the subject {0:?}, which was not asked for")]
    Subject(String),
    #[error("the certificate is an authority's")]
    Authority,
    #[error("the certificate is for {0}; a workload needs digital signature, server auth and client auth, and no more")]
    Usage(String),
    #[error("the certificate has a critical extension that is not known here: {0}")]
    Critical(String),
    #[error("the certificate is not valid now; do the clocks agree?")]
    Time,
    #[error("the certificate lasts {given} s, and {asked} s were asked for")]
    Lifetime { given: u64, asked: u64 },
    #[error("certificate {0} of the chain did not sign the one before it")]
    Order(usize),
    #[error("the chain does not lead to a root that the mesh trusts: {0}")]
    Chain(String),
}

impl SignerRequest {
    /// `chain`: leaf first. `roots`: the trust anchors of the mesh. `lifetime`: as requested.
    pub fn check(
        &self,
        chain: &[Certificate],
        roots: &[Certificate],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<(), IssuedMismatch> {
        let names = Names::Uri(self.identity.to_string());
        let usages = &[Usage::Server, Usage::Client];
        Expected { public_key: self.public_key(), names, lifetime, usages }.check(chain, roots, now)
    }
}

/// A serving certificate of the control plane, for some of these hosts.
pub fn check_serving(
    key: &PrivateKey,
    hosts: &[String],
    chain: &[Certificate],
    roots: &[Certificate],
    lifetime: Duration,
    now: SystemTime,
) -> Result<(), IssuedMismatch> {
    let public_key = &key.public_key();
    Expected { public_key, names: Names::Hosts(hosts), lifetime, usages: &[Usage::Server] }.check(chain, roots, now)
}

impl Expected<'_> {
    fn check(&self, chain: &[Certificate], roots: &[Certificate], now: SystemTime) -> Result<(), IssuedMismatch> {
        let leaf = chain.first().ok_or(IssuedMismatch::Empty)?;
        if leaf.public_key != self.public_key {
            return Err(IssuedMismatch::Key);
        }
        let (_, parsed) = X509Certificate::from_der(&leaf.der).map_err(|_| IssuedMismatch::Form)?;
        self.check_subject(&parsed)?;
        self.check_names(&parsed)?;
        parsed.extensions().iter().try_for_each(|extension| self.check_extension(extension))?;
        self.check_time(leaf, now)?;
        self.check_chain(chain, roots, now.max(leaf.not_before))
    }

    /// None was requested. Some signers repeat the name of a workload as common name.
    fn check_subject(&self, leaf: &X509Certificate<'_>) -> Result<(), IssuedMismatch> {
        for attribute in leaf.subject().iter_attributes() {
            let text = attribute.as_str().map_err(|_| IssuedMismatch::Subject(leaf.subject().to_string()))?;
            let is_own_name = *attribute.attr_type() == OID_X509_COMMON_NAME && self.names.contain(text);
            if !text.is_empty() && !is_own_name {
                return Err(IssuedMismatch::Subject(text.to_owned()));
            }
        }
        Ok(())
    }

    fn check_names(&self, leaf: &X509Certificate<'_>) -> Result<(), IssuedMismatch> {
        let found: Vec<_> = leaf.extensions().iter().filter(|it| it.oid == OID_X509_EXT_SUBJECT_ALT_NAME).collect();
        let [extension] = found[..] else {
            return Err(IssuedMismatch::Name("no SAN, or several SAN extensions".to_owned()));
        };
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            return Err(IssuedMismatch::Form);
        };
        if let Some(other) = names.general_names.iter().find(|name| !self.names.grant(name)) {
            return Err(IssuedMismatch::Name(format!("{other:?}")));
        }
        // Unambiguous also for other parsers.
        match &self.names {
            Names::Uri(uri) if extension.value != general_names(std::slice::from_ref(uri)) => {
                Err(IssuedMismatch::Name("a name twice, or in an unusual encoding".to_owned()))
            }
            _ => Ok(()),
        }
    }

    fn check_extension(&self, extension: &X509Extension<'_>) -> Result<(), IssuedMismatch> {
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => Err(IssuedMismatch::Authority),
            ParsedExtension::KeyUsage(usage) if usage.key_cert_sign() || usage.crl_sign() => {
                Err(IssuedMismatch::Authority)
            }
            ParsedExtension::KeyUsage(usage) if !usage.digital_signature() => {
                Err(IssuedMismatch::Usage(format!("{:?}", usage.to_string())))
            }
            ParsedExtension::ExtendedKeyUsage(usage) => {
                let other = [
                    (usage.any, "any usage"),
                    (usage.code_signing, "code signing"),
                    (usage.email_protection, "e-mail protection"),
                    (usage.time_stamping, "time stamping"),
                    (usage.ocsp_signing, "OCSP signing"),
                    (!usage.other.is_empty(), "an unknown usage"),
                    (!usage.server_auth && self.usages.contains(&Usage::Server), "no server auth"),
                    (!usage.client_auth && self.usages.contains(&Usage::Client), "no client auth"),
                ];
                let wrong = other.into_iter().find(|(holds, _)| *holds);
                wrong.map_or(Ok(()), |(_, what)| Err(IssuedMismatch::Usage(what.to_owned())))
            }
            ParsedExtension::UnsupportedExtension { .. } | ParsedExtension::ParseError { .. } if extension.critical => {
                Err(IssuedMismatch::Critical(extension.oid.to_id_string()))
            }
            ParsedExtension::ParseError { .. } => Err(IssuedMismatch::Form),
            _ => Ok(()),
        }
    }

    /// Allows clock skew of the signer and of proxies.
    fn check_time(&self, leaf: &Certificate, now: SystemTime) -> Result<(), IssuedMismatch> {
        if now >= leaf.not_after || now.checked_add(SKEW).is_some_and(|latest| latest < leaf.not_before) {
            return Err(IssuedMismatch::Time);
        }
        let given = leaf.not_after.duration_since(now).unwrap_or_default();
        if given > self.lifetime.saturating_add(SKEW) {
            return Err(IssuedMismatch::Lifetime { given: given.as_secs(), asked: self.lifetime.as_secs() });
        }
        Ok(())
    }

    fn check_chain(&self, chain: &[Certificate], roots: &[Certificate], at: SystemTime) -> Result<(), IssuedMismatch> {
        let disorder = chain.windows(2).position(|pair| !pair[0].is_signed_by(&pair[1]));
        if let Some(index) = disorder {
            return Err(IssuedMismatch::Order(index + 2));
        }
        let rejected = |error: webpki::Error| IssuedMismatch::Chain(error.to_string());
        let anchors = roots.iter().filter_map(|root| anchor_from_trusted_cert(&root.der).ok()).collect::<Vec<_>>();
        let between: Vec<_> = chain[1..].iter().map(|certificate| certificate.der.clone()).collect();
        let leaf = EndEntityCert::try_from(&chain[0].der).map_err(rejected)?;
        let since = at.duration_since(SystemTime::UNIX_EPOCH).map_err(|_| IssuedMismatch::Time)?;
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        for usage in self.usages {
            let usage = match usage {
                Usage::Server => KeyUsage::server_auth(),
                Usage::Client => KeyUsage::client_auth(),
            };
            let time = UnixTime::since_unix_epoch(since);
            leaf.verify_for_usage(algorithms, &anchors, &between, time, usage, None, None).map_err(rejected)?;
        }
        Ok(())
    }
}

impl Names<'_> {
    fn contain(&self, text: &str) -> bool {
        match self {
            Names::Uri(uri) => uri == text,
            Names::Hosts(hosts) => hosts.iter().any(|host| host == text),
        }
    }

    fn grant(&self, name: &GeneralName<'_>) -> bool {
        match (self, name) {
            (Names::Uri(_), GeneralName::URI(uri)) => self.contain(uri),
            (Names::Hosts(_), GeneralName::DNSName(host)) => self.contain(host),
            (Names::Hosts(hosts), GeneralName::IPAddress(bytes)) => {
                address(bytes).is_some_and(|address| hosts.iter().any(|host| host.parse() == Ok(address)))
            }
            _ => false,
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests;
