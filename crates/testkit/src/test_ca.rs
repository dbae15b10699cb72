//! A CA for tests: one root, and leaf certificates with SPIFFE or DNS names. Nothing is stored.

use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};

pub struct TestCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct LeafCertificate {
    pub certificate: String,
    pub key: String,
}

impl LeafCertificate {
    /// Self-signed, with the SPIFFE name of this workload.
    pub fn self_signed(identity: &str) -> Result<LeafCertificate> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(identity.try_into()?)];
        params.distinguished_name = DistinguishedName::new();
        Ok(LeafCertificate { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// An intermediate CA of this name, signed by this certificate, which must be one of a CA.
    pub fn intermediate(&self, name: &str) -> Result<LeafCertificate> {
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, KeyPair::from_pem(&self.key)?)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(LeafCertificate { certificate: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl TestCa {
    pub fn new() -> Result<TestCa> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(TestCa { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// In PEM.
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// The key of the root, in PEM.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// An empty CRL, in PEM.
    pub fn revocation_list(&self) -> Result<String> {
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
    pub fn workload_certificate(&self, identity: &str) -> Result<LeafCertificate> {
        self.sign_named(SanType::URI(identity.try_into()?))
    }

    /// For a host, such as `shop.example.com`.
    pub fn host_certificate(&self, host: &str) -> Result<LeafCertificate> {
        self.sign_named(SanType::DnsName(host.try_into()?))
    }

    /// A leaf certificate that has expired.
    pub fn expired_certificate(&self, identity: &str) -> Result<LeafCertificate> {
        let mut params = CertificateParams::default();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(params, SanType::URI(identity.try_into()?))
    }

    fn sign_named(&self, name: SanType) -> Result<LeafCertificate> {
        self.sign(CertificateParams::default(), name)
    }

    fn sign(&self, mut params: CertificateParams, name: SanType) -> Result<LeafCertificate> {
        let key = KeyPair::generate()?;
        params.subject_alt_names = vec![name];
        // The default is the root's own name, and OpenSSL takes a leaf of that name for self-signed.
        params.distinguished_name = DistinguishedName::new();
        // Roots have one name here: clients that trust several must find the right one.
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(LeafCertificate { certificate, key: key.serialize_pem() })
    }
}
