//! Certificate signing requests: only the public key is used, after proof of possession of the private key. `signer_request` encodes
//! what another signer receives.

use std::collections::HashSet;

use x509_parser::{
    certification_request::X509CertificationRequest,
    cri_attributes::{ParsedCriAttribute, X509CriAttribute},
    extensions::{GeneralName, ParsedExtension, X509Extension},
    oid_registry::{OID_EC_P256, OID_NIST_EC_P384, OID_PKCS9_CHALLENGE_PASSWORD, OID_PKCS9_EXTENSION_REQUEST},
    pem::parse_x509_pem,
    prelude::FromDer,
    public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

use crate::{
    Identity, SignerRequest,
    der::{elements, public_key},
};

/// Of the PEM text. A CSR with an RSA key of 8192 bits has 3 KB.
const MAX_SIZE: usize = 16 << 10;
/// AlgorithmIdentifiers of keys, as DER.
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
const P384: &[u8] =
    &[0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const RSA: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
/// Go supports no larger one.
const RSA_EXPONENTS: std::ops::RangeInclusive<u64> = 3..=i32::MAX as u64;
/// An uncompressed point; Go supports no other.
const UNCOMPRESSED: u8 = 0x04;

/// `attributes` of a CertificationRequestInfo, as DER.
const NO_ATTRIBUTES: [u8; 2] = [0xa0, 0];

/// A CSR with a verified signature.
#[derive(Debug)]
pub struct Csr {
    /// The SubjectPublicKeyInfo, as DER.
    pub(crate) public_key: Vec<u8>,
    pub(crate) der: Vec<u8>,
}

/// The names that the CSR requests. They count only for an external signer, which may grant them.
#[derive(Debug, Default)]
struct RequestedNames {
    uris: Vec<String>,
    /// The first request besides URIs, for display.
    more: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrError {
    #[error("the signing request has {0} bytes; at most {MAX_SIZE} are read")]
    Size(usize),
    #[error("the signing request is not PEM of a CERTIFICATE REQUEST")]
    Form,
    #[error("the signing request is not signed by the key that it carries")]
    Signature,
    #[error("the signing request asks to become an authority")]
    Authority,
    #[error("the signing request has a critical extension that is not known here: {0}")]
    Critical(String),
    #[error("the signing request has {0}")]
    Attributes(String),
    #[error(
        "the key of the signing request is not accepted: {0}; use ECDSA P-256 or P-384, or RSA with 2048 bits or more"
    )]
    Key(String),
    #[error("the signing request asks for {0}; it may ask for the caller's own name and nothing else")]
    RequestedName(String),
    /// The requested name is right, but the encoding holds more or differs.
    #[error(
        "the signing request cannot be passed on: it must be DER with an empty subject, one extensionRequest with the caller's URI as the only name, and nothing else"
    )]
    Encoding,
}

impl Csr {
    pub fn parse(pem: &str) -> Result<Csr, CsrError> {
        if pem.len() > MAX_SIZE {
            return Err(CsrError::Size(pem.len()));
        }
        let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| CsrError::Form)?;
        if !matches!(&*block.label, "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") {
            return Err(CsrError::Form);
        }
        let (rest, request) = X509CertificationRequest::from_der(&block.contents).map_err(|_| CsrError::Form)?;
        if !rest.is_empty() {
            return Err(CsrError::Form);
        }
        check_attributes(&block.contents)?;
        let algorithm = check_request(&request)?;
        request.verify_signature().map_err(|_| CsrError::Signature)?;
        // Encoded again: nothing besides the key is signed.
        let bits = &request.certification_request_info.subject_pki.subject_public_key.data;
        let public_key = public_key(algorithm, bits);
        Ok(Csr { public_key, der: block.contents })
    }

    /// For a signer that grants what is requested.
    pub fn for_signer(&self, identities: &[Identity]) -> Result<SignerRequest, CsrError> {
        SignerRequest::new(self, identities).ok_or_else(|| self.rejection(identities))
    }

    /// For display: the CSR is rejected already.
    fn rejection(&self, identities: &[Identity]) -> CsrError {
        let Ok((_, request)) = X509CertificationRequest::from_der(&self.der) else { return CsrError::Form };
        let RequestedNames { uris, more } = requested_names(&request);
        if let Some(more) = more {
            return CsrError::RequestedName(more);
        }
        let foreign = uris.iter().find(|uri| !identities.iter().any(|identity| identity.to_string() == **uri));
        match (foreign, uris.len()) {
            (Some(uri), _) => CsrError::RequestedName(uri.clone()),
            (None, 0) => CsrError::RequestedName("no name".to_owned()),
            _ => CsrError::Encoding,
        }
    }
}

/// Requested names are ignored (the caller's identity decides), but a request to become a CA is rejected.
fn check_request(request: &X509CertificationRequest<'_>) -> Result<&'static [u8], CsrError> {
    let algorithm = algorithm(&request.certification_request_info.subject_pki)?;
    let mut seen = HashSet::new();
    for extension in extensions(request) {
        let name = || extension.oid.to_id_string();
        match extension.parsed_extension() {
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => return Err(CsrError::Authority),
            ParsedExtension::UnsupportedExtension { .. } if extension.critical => {
                return Err(CsrError::Critical(name()));
            }
            ParsedExtension::ParseError { .. } => {
                return Err(CsrError::Attributes(format!("an extension that cannot be read: {}", name())));
            }
            _ if !seen.insert(extension.oid.as_bytes()) => {
                return Err(CsrError::Attributes(format!("two extensions {}", name())));
            }
            _ => {}
        }
    }
    Ok(algorithm)
}

fn extensions<'a>(request: &'a X509CertificationRequest<'a>) -> impl Iterator<Item = &'a X509Extension<'a>> {
    let attributes = request.certification_request_info.iter_attributes();
    attributes.flat_map(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(requested) => &requested.extensions[..],
        _ => &[],
    })
}

/// Parsers differ in which of several attributes or values they use, so that there may be only one of each; and in the handling of
/// unknown attributes, so that there may be none.
fn check_attributes(request: &[u8]) -> Result<(), CsrError> {
    let rejected = |what: &str| CsrError::Attributes(what.to_owned());
    let info = elements(request).and_then(|parts| elements(parts[0])).ok_or(CsrError::Form)?;
    let [_, _, _, attributes] = info[..] else { return Err(CsrError::Form) };
    let all = if attributes == NO_ATTRIBUTES { Vec::new() } else { elements(attributes).ok_or(CsrError::Form)? };
    let mut seen = Vec::new();
    for attribute in all {
        let parts = elements(attribute).ok_or(CsrError::Form)?;
        let [_, values] = parts[..] else {
            return Err(rejected("an attribute that is more than a type and its values"));
        };
        if elements(values).is_none_or(|values| values.len() != 1) {
            return Err(rejected("an attribute that has not exactly one value"));
        }
        let (_, parsed) = X509CriAttribute::from_der(attribute).map_err(|_| CsrError::Form)?;
        if ![OID_PKCS9_EXTENSION_REQUEST, OID_PKCS9_CHALLENGE_PASSWORD].contains(&parsed.oid) {
            return Err(rejected(&format!("an attribute that is not known here: {}", parsed.oid)));
        }
        if seen.contains(&parsed.oid) {
            return Err(rejected(&format!("two attributes {}", parsed.oid)));
        }
        seen.push(parsed.oid);
    }
    Ok(())
}

/// The AlgorithmIdentifier of an accepted key, as DER.
fn algorithm(key: &SubjectPublicKeyInfo<'_>) -> Result<&'static [u8], CsrError> {
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    match key.parsed().map_err(|_| CsrError::Form)? {
        PublicKey::RSA(rsa) if !RSA_BITS.contains(&rsa.key_size()) => {
            Err(CsrError::Key(format!("RSA with {} bits", rsa.key_size())))
        }
        PublicKey::RSA(rsa) if !rsa.try_exponent().is_ok_and(|exponent| RSA_EXPONENTS.contains(&exponent)) => {
            Err(CsrError::Key("RSA with a public exponent that is out of range".to_owned()))
        }
        PublicKey::RSA(_) => Ok(RSA),
        PublicKey::EC(point) if point.data().first() != Some(&UNCOMPRESSED) => {
            Err(CsrError::Key("a point of an elliptic curve that is compressed".to_owned()))
        }
        PublicKey::EC(point) => match (curve, point.key_size()) {
            (Some(curve), 256) if curve == OID_EC_P256 => Ok(P256),
            (Some(curve), 384) if curve == OID_NIST_EC_P384 => Ok(P384),
            (_, bits) => Err(CsrError::Key(format!("an elliptic curve of {bits} bits"))),
        },
        _ => Err(CsrError::Key("neither RSA nor ECDSA".to_owned())),
    }
}

fn requested_names(request: &X509CertificationRequest<'_>) -> RequestedNames {
    let mut requested_names = RequestedNames::default();
    let mut more = |what: String| {
        requested_names.more.get_or_insert(what);
    };
    // Agents set an empty organization.
    let named = request.certification_request_info.subject.iter_attributes().filter_map(|it| it.as_str().ok());
    named.filter(|text| !text.is_empty()).for_each(|text| more(format!("the subject {text:?}")));
    for extension in extensions(request) {
        let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
            more("an extension besides names".to_owned());
            continue;
        };
        for name in &names.general_names {
            match name {
                GeneralName::URI(uri) => requested_names.uris.push((*uri).to_owned()),
                other => more(format!("the name {other:?}")),
            }
        }
    }
    requested_names
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::{KeyType, PrivateKey};

    pub(crate) fn request(kind: KeyType) -> String {
        let identity: Identity = "spiffe://elsewhere/ns/other/sa/admin".parse().unwrap();
        PrivateKey::generate(kind).unwrap().csr(&identity).unwrap()
    }

    #[test]
    fn an_external_signer_receives_only_the_callers_name() {
        let own: Identity = "spiffe://elsewhere/ns/other/sa/admin".parse().unwrap();
        let other: Identity = "spiffe://elsewhere/ns/other/sa/cart".parse().unwrap();
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        assert_eq!(csr.for_signer(&[other.clone(), own.clone()]).unwrap().identity, own);
        assert_eq!(csr.for_signer(&[other]).unwrap_err(), CsrError::RequestedName(own.to_string()));
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let server = Csr::parse(&key.server_csr(&["istiod.istio-system.svc".to_owned()]).unwrap()).unwrap();
        assert!(
            server.for_signer(std::slice::from_ref(&own)).unwrap_err().to_string().contains("istiod.istio-system.svc")
        );
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let nameless = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        assert!(Csr::parse(&nameless).unwrap().for_signer(&[own]).is_err());
    }

    #[test]
    fn keys_of_agents_are_accepted() {
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            Csr::parse(&request(kind)).unwrap();
        }
    }

    #[test]
    fn a_key_is_written_as_the_library_writes_it() {
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let key = PrivateKey::generate(kind).unwrap();
            let identity: Identity = "spiffe://d/ns/a/sa/b".parse().unwrap();
            let csr = Csr::parse(&key.csr(&identity).unwrap()).unwrap();
            assert_eq!(csr.public_key, rcgen::PublicKeyData::subject_public_key_info(&key.0), "{kind}");
        }
    }

    #[test]
    fn rejects_a_tampered_request() {
        let pem = request(KeyType::P256);
        let lines: Vec<&str> = pem.lines().collect();
        let mut body = data_encoding_base64(&lines[1..lines.len() - 1].concat());
        let last = body.len() - 3;
        body[last] ^= 1;
        let forged = x509_parser::pem::Pem { label: "CERTIFICATE REQUEST".into(), contents: body };
        assert!(matches!(Csr::parse(&pem_text(&forged)).unwrap_err(), CsrError::Signature | CsrError::Form));
    }

    #[test]
    fn rejects_a_request_to_be_a_ca() {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(Csr::parse(&pem).unwrap_err(), CsrError::Authority);
    }

    #[test]
    fn rejects_an_unknown_critical_extension() {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        let mut params = CertificateParams::default();
        params.custom_extensions = vec![extension];
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(Csr::parse(&pem).unwrap_err(), CsrError::Critical("1.3.6.1.4.1.99999.1".to_owned()));
    }

    /// Parsers use the first, the last, or all of them.
    #[test]
    fn rejects_what_readers_disagree_about() {
        use crate::der::{BIT_STRING, OCTET_STRING, SEQUENCE, SET, wrapped};
        let key = KeyPair::generate().unwrap();
        let requested = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
        let vendors = [0x06, 0x0a, 0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0d, 0x02, 0x03];
        let parsed = |attributes: &[&[u8]]| {
            let spki = rcgen::PublicKeyData::subject_public_key_info(&key);
            let info = wrapped(SEQUENCE, &[&[2, 1, 0, 0x30, 0], &spki, &wrapped(0xa0, attributes)]);
            let signature = wrapped(BIT_STRING, &[&[0], &rcgen::SigningKey::sign(&key, &info).unwrap()]);
            let algorithm = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
            let contents = wrapped(SEQUENCE, &[&info, &algorithm, &signature]);
            Csr::parse(&pem_text(&x509_parser::pem::Pem { label: "CERTIFICATE REQUEST".into(), contents }))
        };
        let names = wrapped(SEQUENCE, &[&crate::der::SUBJECT_ALT_NAME, &wrapped(OCTET_STRING, &[&[0x30, 0]])]);
        let broken = wrapped(SEQUENCE, &[&crate::der::SUBJECT_ALT_NAME, &wrapped(OCTET_STRING, &[&[0x30, 9]])]);
        let list = |extensions: &[&[u8]]| wrapped(SEQUENCE, extensions);
        let attribute = |oid: &[u8], values: &[&[u8]]| wrapped(SEQUENCE, &[oid, &wrapped(SET, values)]);
        let good = attribute(&requested, &[&list(&[&names])]);
        assert!(parsed(&[&good]).is_ok() && parsed(&[]).is_ok());
        for (bad, why) in [
            (parsed(&[&good, &good]), "two attributes"),
            (parsed(&[&attribute(&requested, &[&list(&[&names]), &list(&[&names])])]), "exactly one value"),
            (parsed(&[&attribute(&requested, &[])]), ""),
            (parsed(&[&good, &attribute(&vendors, &[&[0x05, 0]])]), "1.3.6.1.4.1.311.13.2.3"),
            (parsed(&[&attribute(&requested, &[&list(&[&names, &names])])]), "two extensions 2.5.29.17"),
            (parsed(&[&attribute(&requested, &[&list(&[&broken])])]), "cannot be read: 2.5.29.17"),
        ] {
            let error = bad.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn rejects_a_compressed_point() {
        let key = KeyPair::generate().unwrap();
        let point = rcgen::PublicKeyData::der_bytes(&key);
        let compressed = [&[2 + (point[64] & 1)], &point[1..33]].concat();
        let der = public_key(P256, &compressed);
        let (_, parsed) = SubjectPublicKeyInfo::from_der(&der).unwrap();
        assert!(matches!(algorithm(&parsed), Err(CsrError::Key(_))));
    }

    #[test]
    fn rejects_a_weak_key_before_verifying_the_signature() {
        // openssl req -new -newkey rsa:1024 -nodes -subj /CN=weak
        let pem = include_str!("csr/rsa-1024.pem");
        assert_eq!(Csr::parse(pem).unwrap_err(), CsrError::Key("RSA with 1024 bits".to_owned()));
    }

    #[test]
    fn rejects_a_giant_key_before_verifying_the_signature() {
        // openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:16384, then openssl req -new -subj /CN=giant
        let pem = include_str!("csr/rsa-16384.pem");
        assert_eq!(Csr::parse(pem).unwrap_err(), CsrError::Key("RSA with 16384 bits".to_owned()));
    }

    #[test]
    fn rejects_what_is_not_a_request() {
        let certificate = include_str!("csr/certificate.pem");
        for bad in
            ["", "hello", certificate, "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
        {
            assert_eq!(Csr::parse(bad).unwrap_err(), CsrError::Form, "{bad}");
        }
        assert_eq!(Csr::parse(&"x".repeat(1 << 20)).unwrap_err(), CsrError::Size(1 << 20));
    }

    fn data_encoding_base64(text: &str) -> Vec<u8> {
        data_encoding::BASE64.decode(text.as_bytes()).unwrap()
    }

    fn pem_text(pem: &x509_parser::pem::Pem) -> String {
        let body = data_encoding::BASE64.encode(&pem.contents);
        format!("-----BEGIN {0}-----\n{body}\n-----END {0}-----\n", pem.label)
    }
}
