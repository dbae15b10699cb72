//! Throw-away certificates: one root, and leaves with SPIFFE names. They die with the process that made them.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct Leaf {
    pub certificate: String,
    pub key: String,
}

impl Leaf {
    /// The right name, and nobody who vouches for it.
    pub fn self_signed(identity: &str) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
        params.distinguished_name = DistinguishedName::new();
        Ok(Leaf { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// An authority of this name that this one, whose certificate must allow it, signs.
    pub fn intermediate(&self, name: &str) -> Result<Leaf> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Leaf { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl Authority {
    pub fn new() -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// In PEM.
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// The key of the root, in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A list of revoked certificates that names none, in PEM.
    pub fn revocations(&self) -> Result<String> {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2020, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer)?.pem()?)
    }

    /// Good for both ends of a connection; `identity` is like `spiffe://cluster.local/ns/shop/sa/cart`.
    pub fn leaf(&self, identity: &str) -> Result<Leaf> {
        self.named(SanType::URI(identity.try_into()?))
    }

    /// For a host, such as `shop.example.com`.
    pub fn site(&self, host: &str) -> Result<Leaf> {
        self.named(SanType::DnsName(host.try_into()?))
    }

    /// A leaf whose time is over.
    pub fn expired(&self, identity: &str) -> Result<Leaf> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.signed(params, SanType::URI(identity.try_into()?))
    }

    fn named(&self, name: SanType) -> Result<Leaf> {
        self.signed(CertificateParams::default(), name)
    }

    fn signed(&self, mut params: CertificateParams, name: SanType) -> Result<Leaf> {
        let key = KeyPair::generate()?;
        params.subject_alt_names = vec![name];
        // The default is the root's own name, and OpenSSL takes a leaf of that name for self-signed.
        params.distinguished_name = DistinguishedName::new();
        // Roots have one name here: clients that trust several must find the right one.
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }
}
