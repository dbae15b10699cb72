//! The signing certificate authority: one signer with its chain and roots. Leaves never outlive the signer.

use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::{
    Certificate, Csr, Identity, InvalidCertificate, PrivateKey,
    certificate::pem,
    leaf::{LeafFields, LeafTemplate},
};

/// Allowed clock skew of proxies and of other signers.
pub(crate) const SKEW: Duration = Duration::from_secs(120);
const SAMPLE: &str = "spiffe://d/ns/n/sa/a";

/// Immutable: a new root or intermediate is a new authority.
pub struct Authority {
    issuer: Issuer<'static, PrivateKey>,
    template: LeafTemplate,
    /// The signer first, then its issuers; the root only if it is the signer.
    chain: Vec<Certificate>,
    roots: Vec<Certificate>,
    /// PEM that follows every leaf: intermediates, one element each, and last all roots in one.
    chain_suffix: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SignError {
    #[error("the authority's own certificate cannot be used: {0}")]
    InvalidCertificate(#[from] InvalidCertificate),
    #[error("signing failed: {0}")]
    Crypto(#[from] rcgen::Error),
}

impl Authority {
    /// `chain`: the signer, then its issuers. `roots`: the trust anchors of clients. Everything is verified, so that no leaf
    /// is ever signed that clients would reject.
    pub fn new(
        key: &PrivateKey,
        chain: Vec<Certificate>,
        roots: Vec<Certificate>,
        now: SystemTime,
    ) -> Result<Authority, InvalidCertificate> {
        let signer = chain.first().ok_or(InvalidCertificate::Empty)?;
        if !signer.has_key(key) {
            return Err(InvalidCertificate::Mismatch);
        }
        if !signer.is_ca {
            return Err(InvalidCertificate::NotAuthority);
        }
        for (index, pair) in chain.windows(2).enumerate() {
            if !pair[0].is_signed_by(&pair[1]) {
                return Err(InvalidCertificate::Chain(index + 2));
            }
        }
        for certificate in &chain {
            certificate.check_valid_at(now)?;
        }
        let last = &chain[chain.len() - 1];
        if !roots.iter().any(|root| root == last || last.is_signed_by(root)) {
            return Err(InvalidCertificate::Root);
        }
        let copy = key.try_clone().map_err(|_| InvalidCertificate::Key)?;
        let issuer = Issuer::from_ca_cert_der(&signer.der, copy).map_err(|_| InvalidCertificate::Form(1))?;
        let intermediates = chain.iter().filter(|certificate| !roots.contains(certificate)).map(Certificate::pem);
        let chain_suffix = intermediates.chain([roots.iter().map(Certificate::pem).collect()]).collect();
        // A sample leaf: only the parts that all leaves share are used.
        let sample = leaf(
            &issuer,
            issuer.key(),
            vec![SanType::URI(SAMPLE.try_into().map_err(|_| InvalidCertificate::Form(1))?)],
            (now, now),
        );
        let template = sample.ok().and_then(|sample| LeafTemplate::of(&sample)).ok_or(InvalidCertificate::Form(1))?;
        Ok(Authority { issuer, template, chain, roots, chain_suffix })
    }

    pub fn roots(&self) -> &[Certificate] {
        &self.roots
    }

    /// All roots in one PEM text: the content of `istio-ca-root-cert` and `ROOTCA`.
    pub fn roots_pem(&self) -> String {
        self.chain_suffix.last().cloned().unwrap_or_default()
    }

    /// The earliest expiry in the chain.
    pub fn not_after(&self) -> SystemTime {
        let ends = self.chain.iter().map(|certificate| certificate.not_after);
        ends.min().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// The type of the key that signs, spelled as istiod's CITADEL_SELF_SIGNED_CA_KEY_TYPE.
    pub fn key_type(&self) -> String {
        self.issuer.key().type_name()
    }

    /// The public key comes from the CSR, the name from the authenticated caller. Returns PEM: the leaf, intermediates, and the roots
    /// last.
    pub fn sign(
        &self,
        csr: &Csr,
        identities: &[Identity],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Vec<String>, SignError> {
        let (not_before, not_after) = self.validity(lifetime, now)?;
        let uris: Vec<String> = identities.iter().map(ToString::to_string).collect();
        let own = LeafFields { serial: &serial()?, not_before, not_after, uris: &uris, public_key: &csr.public_key };
        let leaf = self.template.signed(&own, self.issuer.key())?;
        Ok(std::iter::once(pem("CERTIFICATE", &leaf)).chain(self.chain_suffix.iter().cloned()).collect())
    }

    /// A serving certificate of the control plane for its DNS names, with intermediates.
    pub fn serving(
        &self,
        key: &PrivateKey,
        hosts: &[String],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Vec<Certificate>, SignError> {
        let names = hosts.iter().map(|host| match host.parse() {
            Ok(address) => Ok(SanType::IpAddress(address)),
            Err(_) => Ok(SanType::DnsName(host.as_str().try_into()?)),
        });
        let names = names.collect::<Result<Vec<_>, rcgen::Error>>()?;
        let leaf = leaf(&self.issuer, key, names, self.validity(lifetime, now)?)?;
        let leaf = Certificate::parse(&leaf).ok_or(rcgen::Error::CouldNotParseCertificate)?;
        let intermediates = self.chain.iter().filter(|certificate| !self.roots.contains(certificate));
        Ok(std::iter::once(leaf).chain(intermediates.cloned()).collect())
    }

    fn validity(&self, lifetime: Duration, now: SystemTime) -> Result<(SystemTime, SystemTime), InvalidCertificate> {
        let end = self.not_after();
        if now >= end {
            return Err(InvalidCertificate::Expired);
        }
        Ok((now.checked_sub(SKEW).unwrap_or(now), now.checked_add(lifetime).unwrap_or(end).min(end)))
    }
}

fn leaf(
    issuer: &Issuer<'_, PrivateKey>,
    key: &PrivateKey,
    names: Vec<SanType>,
    (not_before, not_after): (SystemTime, SystemTime),
) -> Result<CertificateDer<'static>, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.subject_alt_names = names;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.serial_number = Some(SerialNumber::from_slice(&serial()?));
    params.not_before = OffsetDateTime::from(not_before);
    params.not_after = OffsetDateTime::from(not_after);
    Ok(params.signed_by(key, issuer)?.into())
}

/// 128 random bits: rcgen would derive it from the public key, and renewals would collide.
pub(crate) fn serial() -> Result<[u8; 16], rcgen::Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| rcgen::Error::RingUnspecified)?;
    // A serial is a positive integer without a leading zero byte.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyType, RootOptions, bundle, csr::tests::request};

    const HOUR: Duration = Duration::from_secs(3600);

    fn authority(kind: KeyType, lifetime: Duration, now: SystemTime) -> Authority {
        let options = RootOptions { key: kind, lifetime, organization: "cluster.local".to_owned() };
        let (key, root) = options.generate(now).unwrap();
        Authority::new(&key, vec![root.clone()], vec![root], now).unwrap()
    }

    fn leaf(authority: &Authority, csr: &Csr, lifetime: Duration, now: SystemTime) -> Certificate {
        bundle(&authority.sign(csr, &[cart()], lifetime, now).unwrap()[0]).unwrap().remove(0)
    }

    fn cart() -> Identity {
        "spiffe://cluster.local/ns/shop/sa/cart".parse().unwrap()
    }

    #[test]
    fn the_caller_decides_the_name_not_the_request() {
        let now = SystemTime::now();
        let authority = authority(KeyType::P256, 24 * HOUR, now);
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        let chain = authority.sign(&csr, &[cart()], HOUR, now).unwrap();
        let leaf = bundle(&chain[0]).unwrap().remove(0);
        assert_eq!(leaf.uris, ["spiffe://cluster.local/ns/shop/sa/cart"]);
        assert!(!leaf.is_ca && leaf.is_signed_by(&authority.roots()[0]));
        assert_eq!(chain, [leaf.pem(), authority.roots_pem()]);
    }

    #[test]
    fn requested_host_names_are_ignored() {
        let now = SystemTime::now();
        let names = vec!["*.cluster.local".to_owned(), "istiod.istio-system.svc".to_owned()];
        let params = rcgen::CertificateParams::new(names).unwrap();
        let request = params.serialize_request(&rcgen::KeyPair::generate().unwrap()).unwrap().pem().unwrap();
        let csr = Csr::parse(&request).unwrap();
        let leaf = leaf(&authority(KeyType::P256, 24 * HOUR, now), &csr, HOUR, now);
        assert_eq!(leaf.uris, ["spiffe://cluster.local/ns/shop/sa/cart"]);
        use x509_parser::prelude::FromDer;
        let parsed = x509_parser::certificate::X509Certificate::from_der(&leaf.der).unwrap().1;
        let names = parsed.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 1, "{:?}", names.value);
    }

    #[test]
    fn every_kind_of_authority_signs_every_kind_of_key() {
        let now = SystemTime::now();
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let authority = authority(kind, 24 * HOUR, now);
            assert_eq!(authority.key_type(), kind.to_string());
            for key in [KeyType::P256, KeyType::Rsa2048] {
                let csr = Csr::parse(&request(key)).unwrap();
                assert!(leaf(&authority, &csr, HOUR, now).is_signed_by(&authority.roots()[0]), "{kind} {key}");
            }
        }
    }

    #[test]
    fn a_leaf_never_outlives_its_signer() {
        let now = SystemTime::now();
        let authority = authority(KeyType::P256, HOUR, now);
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        assert!(leaf(&authority, &csr, 24 * HOUR, now).not_after <= authority.not_after());
        assert!(authority.sign(&csr, &[cart()], HOUR, now + 2 * HOUR).is_err());
        // Not even where the sum of times overflows.
        assert!(leaf(&authority, &csr, Duration::MAX, now).not_after <= authority.not_after());
    }

    #[test]
    fn slow_clocks_accept_a_fresh_certificate() {
        let now = SystemTime::now();
        let authority = authority(KeyType::P256, 24 * HOUR, now);
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        let leaf = leaf(&authority, &csr, HOUR, now);
        assert!(leaf.check_valid_at(now - Duration::from_secs(110)).is_ok());
    }

    #[test]
    fn serials_differ_for_the_same_key() {
        let now = SystemTime::now();
        let authority = authority(KeyType::P256, 24 * HOUR, now);
        let csr = Csr::parse(&request(KeyType::P256)).unwrap();
        let leaves: Vec<_> = (0..3).map(|_| leaf(&authority, &csr, HOUR, now).der).collect();
        let serial = |der: &[u8]| {
            use x509_parser::prelude::FromDer;
            x509_parser::certificate::X509Certificate::from_der(der).unwrap().1.raw_serial().to_vec()
        };
        assert!(serial(&leaves[0]) != serial(&leaves[1]) && serial(&leaves[1]) != serial(&leaves[2]));
    }

    #[test]
    fn rejects_a_foreign_key_or_root() {
        let now = SystemTime::now();
        let options = RootOptions { key: KeyType::P256, lifetime: HOUR, organization: "d".to_owned() };
        let (key, root) = options.generate(now).unwrap();
        let (other_key, other) = options.generate(now).unwrap();
        let new = |key, chain, roots, now| Authority::new(key, chain, roots, now).err();
        assert_eq!(new(&other_key, vec![root.clone()], vec![root.clone()], now), Some(InvalidCertificate::Mismatch));
        assert_eq!(new(&key, vec![root.clone()], vec![other.clone()], now), Some(InvalidCertificate::Root));
        assert_eq!(new(&key, vec![root.clone(), other], vec![root.clone()], now), Some(InvalidCertificate::Chain(2)));
        assert_eq!(new(&key, vec![root.clone()], vec![root], now + 2 * HOUR), Some(InvalidCertificate::Expired));
    }

    #[test]
    fn serving_names_are_hosts_and_addresses() {
        let now = SystemTime::now();
        let authority = authority(KeyType::P256, 24 * HOUR, now);
        let key = PrivateKey::generate(KeyType::P256).unwrap();
        let hosts = ["istiod.istio-system.svc".to_owned(), "127.0.0.1".to_owned()];
        let chain = authority.serving(&key, &hosts, HOUR, now).unwrap();
        let [leaf] = &chain[..] else { panic!("a root signs itself, there are no intermediates: {chain:?}") };
        assert!(leaf.uris.is_empty() && leaf.is_signed_by(&authority.roots()[0]));
    }
}
