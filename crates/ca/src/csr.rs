//! A signing request: only its public key is used, and only once its owner has shown to have the private one.

use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    oid_registry::{OID_EC_P256, OID_NIST_EC_P384},
    pem::parse_x509_pem,
    prelude::FromDer,
    public_key::PublicKey,
    x509::SubjectPublicKeyInfo,
};

use crate::{Identity, leaf};

/// Of the PEM text. A request with an RSA key of 8192 bits has 3 KB.
const MAX_SIZE: usize = 16 << 10;
/// Algorithms of keys, as DER.
const P256: &[u8] = &[
    0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
const P384: &[u8] =
    &[0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
const RSA: &[u8] = &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A request whose signature holds.
#[derive(Debug)]
pub struct Csr {
    /// With its algorithm, as DER.
    pub(crate) public_key: Vec<u8>,
    der: Vec<u8>,
}

/// What it would like to be. Counts only where somebody else signs, who grants it.
#[derive(Debug, Default)]
struct Wishes {
    uris: Vec<String>,
    /// The first thing besides, for people.
    more: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsrRefused {
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
    #[error(
        "the key of the signing request is not accepted: {0}; use ECDSA P-256 or P-384, or RSA with 2048 bits or more"
    )]
    Key(String),
    #[error("the signing request asks for {0}; it may ask for the caller's own name and nothing else")]
    Wish(String),
}

impl Csr {
    pub fn parse(pem: &str) -> Result<Csr, CsrRefused> {
        if pem.len() > MAX_SIZE {
            return Err(CsrRefused::Size(pem.len()));
        }
        let (_, block) = parse_x509_pem(pem.as_bytes()).map_err(|_| CsrRefused::Form)?;
        if !matches!(&*block.label, "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST") {
            return Err(CsrRefused::Form);
        }
        let (rest, request) = X509CertificationRequest::from_der(&block.contents).map_err(|_| CsrRefused::Form)?;
        if !rest.is_empty() {
            return Err(CsrRefused::Form);
        }
        let algorithm = accepted(&request)?;
        request.verify_signature().map_err(|_| CsrRefused::Signature)?;
        // Written anew: what else stands beside the key is not worth a signature.
        let bits = &request.certification_request_info.subject_pki.subject_public_key.data;
        let public_key = leaf::public_key(algorithm, bits);
        Ok(Csr { public_key, der: block.contents })
    }

    /// For a signer that grants what is asked for.
    pub fn asks_only_for(&self, identities: &[Identity]) -> Result<(), CsrRefused> {
        let (_, request) = X509CertificationRequest::from_der(&self.der).map_err(|_| CsrRefused::Form)?;
        let Wishes { uris, more } = wishes(&request);
        if let Some(more) = more {
            return Err(CsrRefused::Wish(more));
        }
        let foreign = uris.iter().find(|uri| !identities.iter().any(|identity| identity.to_string() == **uri));
        match (foreign, uris.len()) {
            (Some(uri), _) => Err(CsrRefused::Wish(uri.clone())),
            (None, 0) => Err(CsrRefused::Wish("no name".to_owned())),
            _ => Ok(()),
        }
    }
}

/// What the request wishes for is not granted (the caller's identity decides), but a wish for power is a reason to refuse.
fn accepted(request: &X509CertificationRequest<'_>) -> Result<&'static [u8], CsrRefused> {
    let algorithm = algorithm(&request.certification_request_info.subject_pki)?;
    for extension in request.requested_extensions().into_iter().flatten() {
        match extension {
            ParsedExtension::BasicConstraints(constraints) if constraints.ca => return Err(CsrRefused::Authority),
            ParsedExtension::UnsupportedExtension { oid } if is_critical(request, oid) => {
                return Err(CsrRefused::Critical(oid.to_id_string()));
            }
            _ => {}
        }
    }
    Ok(algorithm)
}

/// Of a key that is accepted, as DER.
fn algorithm(key: &SubjectPublicKeyInfo<'_>) -> Result<&'static [u8], CsrRefused> {
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    match key.parsed().map_err(|_| CsrRefused::Form)? {
        PublicKey::RSA(rsa) if RSA_BITS.contains(&rsa.key_size()) => Ok(RSA),
        PublicKey::RSA(rsa) => Err(CsrRefused::Key(format!("RSA with {} bits", rsa.key_size()))),
        PublicKey::EC(point) => match (curve, point.key_size()) {
            (Some(curve), 256) if curve == OID_EC_P256 => Ok(P256),
            (Some(curve), 384) if curve == OID_NIST_EC_P384 => Ok(P384),
            (_, bits) => Err(CsrRefused::Key(format!("an elliptic curve of {bits} bits"))),
        },
        _ => Err(CsrRefused::Key("neither RSA nor ECDSA".to_owned())),
    }
}

fn wishes(request: &X509CertificationRequest<'_>) -> Wishes {
    let mut wishes = Wishes::default();
    let mut more = |what: String| {
        wishes.more.get_or_insert(what);
    };
    // Agents name an organization that is empty.
    let named = request.certification_request_info.subject.iter_attributes().filter_map(|it| it.as_str().ok());
    named.filter(|text| !text.is_empty()).for_each(|text| more(format!("the subject {text:?}")));
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            more("an extension besides names".to_owned());
            continue;
        };
        for name in &names.general_names {
            match name {
                GeneralName::URI(uri) => wishes.uris.push((*uri).to_owned()),
                other => more(format!("the name {other:?}")),
            }
        }
    }
    wishes
}

fn is_critical(request: &X509CertificationRequest<'_>, oid: &x509_parser::oid_registry::Oid<'_>) -> bool {
    use x509_parser::cri_attributes::ParsedCriAttribute;
    request.certification_request_info.iter_attributes().any(|attribute| match attribute.parsed_attribute() {
        ParsedCriAttribute::ExtensionRequest(requested) => {
            requested.extensions.iter().any(|extension| extension.critical && extension.oid == *oid)
        }
        _ => false,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::{KeyType, Private};

    pub(crate) fn request(kind: KeyType) -> String {
        let identity: Identity = "spiffe://elsewhere/ns/other/sa/admin".parse().unwrap();
        Private::generate(kind).unwrap().csr(&identity).unwrap()
    }

    #[test]
    fn a_signer_that_grants_wishes_is_shown_only_the_callers_name() {
        let own: Identity = "spiffe://elsewhere/ns/other/sa/admin".parse().unwrap();
        let other: Identity = "spiffe://elsewhere/ns/other/sa/cart".parse().unwrap();
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        assert_eq!(csr.asks_only_for(&[other.clone(), own.clone()]), Ok(()));
        assert_eq!(csr.asks_only_for(&[other]), Err(CsrRefused::Wish(own.to_string())));
        let key = Private::generate(KeyType::P256).unwrap();
        let server = Csr::parse(&key.server_csr(&["istiod.istio-system.svc".to_owned()]).unwrap()).unwrap();
        assert!(
            server
                .asks_only_for(std::slice::from_ref(&own))
                .unwrap_err()
                .to_string()
                .contains("istiod.istio-system.svc")
        );
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let nameless = params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        assert!(Csr::parse(&nameless).unwrap().asks_only_for(&[own]).is_err());
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
            let key = Private::generate(kind).unwrap();
            let identity: Identity = "spiffe://d/ns/a/sa/b".parse().unwrap();
            let csr = Csr::parse(&key.csr(&identity).unwrap()).unwrap();
            assert_eq!(csr.public_key, rcgen::PublicKeyData::subject_public_key_info(&key.0), "{kind}");
        }
    }

    #[test]
    fn a_tampered_request_is_refused() {
        let pem = request(KeyType::P256);
        let lines: Vec<&str> = pem.lines().collect();
        let mut body = data_encoding_base64(&lines[1..lines.len() - 1].concat());
        let last = body.len() - 3;
        body[last] ^= 1;
        let forged = x509_parser::pem::Pem { label: "CERTIFICATE REQUEST".into(), contents: body };
        assert!(matches!(Csr::parse(&pem_text(&forged)).unwrap_err(), CsrRefused::Signature | CsrRefused::Form));
    }

    #[test]
    fn a_request_to_be_an_authority_is_refused() {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(Csr::parse(&pem).unwrap_err(), CsrRefused::Authority);
    }

    #[test]
    fn an_unknown_critical_extension_is_refused() {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        extension.set_criticality(true);
        let mut params = CertificateParams::default();
        params.custom_extensions = vec![extension];
        let key = KeyPair::generate().unwrap();
        let pem = params.serialize_request(&key).unwrap().pem().unwrap();
        assert_eq!(Csr::parse(&pem).unwrap_err(), CsrRefused::Critical("1.3.6.1.4.1.99999.1".to_owned()));
    }

    #[test]
    fn a_weak_key_is_refused_before_its_signature_is_looked_at() {
        // openssl req -new -newkey rsa:1024 -nodes -subj /CN=weak
        let pem = include_str!("csr/rsa-1024.pem");
        assert_eq!(Csr::parse(pem).unwrap_err(), CsrRefused::Key("RSA with 1024 bits".to_owned()));
    }

    #[test]
    fn a_giant_key_is_refused_before_its_signature_is_looked_at() {
        // openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:16384, then openssl req -new -subj /CN=giant
        let pem = include_str!("csr/rsa-16384.pem");
        assert_eq!(Csr::parse(pem).unwrap_err(), CsrRefused::Key("RSA with 16384 bits".to_owned()));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let certificate = include_str!("csr/certificate.pem");
        for bad in
            ["", "hello", certificate, "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
        {
            assert_eq!(Csr::parse(bad).unwrap_err(), CsrRefused::Form, "{bad}");
        }
        assert_eq!(Csr::parse(&"x".repeat(1 << 20)).unwrap_err(), CsrRefused::Size(1 << 20));
    }

    fn data_encoding_base64(text: &str) -> Vec<u8> {
        data_encoding::BASE64.decode(text.as_bytes()).unwrap()
    }

    fn pem_text(pem: &x509_parser::pem::Pem) -> String {
        let body = data_encoding::BASE64.encode(&pem.contents);
        format!("-----BEGIN {0}-----\n{body}\n-----END {0}-----\n", pem.label)
    }
}
