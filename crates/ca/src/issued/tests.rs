//! Certificates that another signer might return, each with one difference from the request.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use time::OffsetDateTime;

use super::*;
use crate::{Csr, Identity, KeyType};

const HOUR: Duration = Duration::from_secs(3600);
const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

/// A signer, one request, and the certificates for it.
struct SigningCase {
    key: PrivateKey,
    request: SignerRequest,
    issuer: Issuer<'static, KeyPair>,
    root: Certificate,
    now: SystemTime,
}

impl SigningCase {
    fn new() -> SigningCase {
        let (key, now) = (PrivateKey::generate(KeyType::P256).unwrap(), SystemTime::now());
        let identity: Identity = CART.parse().unwrap();
        let csr = Csr::parse(&key.csr(&identity).unwrap()).unwrap();
        let request = csr.for_signer(&[identity]).unwrap();
        let (issuer, root) = authority("root", None, now);
        SigningCase { key, request, issuer, root, now }
    }

    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(CART.try_into().unwrap())];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = OffsetDateTime::from(self.now);
        params.not_after = OffsetDateTime::from(self.now + HOUR);
        params
    }

    fn signed(&self, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = self.params();
        change(&mut params);
        Certificate::parse(params.signed_by(&self.key.0, &self.issuer).unwrap().der()).unwrap()
    }

    fn check(&self, change: impl FnOnce(&mut CertificateParams)) -> Result<(), IssuedMismatch> {
        self.request.check(&[self.signed(change)], std::slice::from_ref(&self.root), HOUR, self.now)
    }
}

fn authority(
    name: &str,
    signer: Option<&Issuer<'_, KeyPair>>,
    now: SystemTime,
) -> (Issuer<'static, KeyPair>, Certificate) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = OffsetDateTime::from(now - HOUR);
    params.not_after = OffsetDateTime::from(now + 24 * HOUR);
    let made = match signer {
        Some(signer) => params.clone().signed_by(&key, signer),
        None => params.clone().self_signed(&key),
    };
    let certificate = Certificate::parse(made.unwrap().der()).unwrap();
    (Issuer::new(params, key), certificate)
}

fn name(uri: &str) -> SanType {
    SanType::URI(uri.try_into().unwrap())
}

#[test]
fn accepts_what_was_asked_for() {
    let case = SigningCase::new();
    assert_eq!(case.check(|_| {}), Ok(()));
    assert_eq!(case.check(|params| params.key_usages.clear()), Ok(()), "no usage: any");
    assert_eq!(case.check(|params| params.extended_key_usages.clear()), Ok(()));
    assert_eq!(case.check(|params| params.is_ca = IsCa::ExplicitNoCa), Ok(()));
    assert_eq!(case.check(|params| params.distinguished_name.push(DnType::OrganizationName, "")), Ok(()));
    assert_eq!(case.check(|params| params.distinguished_name.push(DnType::CommonName, CART)), Ok(()));
    // The clock of the signer is ahead, or it backdates for clocks that are behind.
    assert_eq!(case.check(|params| params.not_before += Duration::from_secs(100)), Ok(()));
    assert_eq!(case.check(|params| params.not_before -= 24 * HOUR), Ok(()));
    assert_eq!(case.check(|params| params.not_after += Duration::from_secs(100)), Ok(()));
}

#[test]
fn rejects_another_key() {
    let (mut case, other) = (SigningCase::new(), SigningCase::new());
    case.key = other.key;
    assert_eq!(case.check(|_| {}), Err(IssuedMismatch::Key));
}

#[test]
fn rejects_any_name_but_the_one_asked_for() {
    let case = SigningCase::new();
    for more in [
        name("spiffe://cluster.local/ns/shop/sa/admin"),
        name(CART),
        SanType::DnsName("istiod.istio-system.svc".try_into().unwrap()),
        SanType::Rfc822Name("a@b".try_into().unwrap()),
        SanType::IpAddress([10, 0, 0, 1].into()),
        SanType::OtherName((vec![1, 2, 3], rcgen::OtherNameValue::Utf8String("x".to_owned()))),
    ] {
        let found = case.check(|params| params.subject_alt_names.push(more.clone()));
        assert!(matches!(found, Err(IssuedMismatch::Name(_))), "{more:?}: {found:?}");
    }
    for other in ["spiffe://cluster.local/ns/shop/sa/cart2", "spiffe://cluster.local/ns/shop/sa/Cart", "x:y"] {
        let found = case.check(|params| params.subject_alt_names = vec![name(other)]);
        assert!(matches!(found, Err(IssuedMismatch::Name(_))), "{other}: {found:?}");
    }
    assert!(matches!(case.check(|params| params.subject_alt_names.clear()), Err(IssuedMismatch::Name(_))));
}

#[test]
fn rejects_a_subject_that_was_not_asked_for() {
    let case = SigningCase::new();
    for (kind, text) in [(DnType::CommonName, "admin"), (DnType::OrganizationName, "system:masters")] {
        let found = case.check(|params| params.distinguished_name.push(kind, text));
        assert_eq!(found, Err(IssuedMismatch::Subject(text.to_owned())));
    }
}

#[test]
fn rejects_an_authority_and_other_usages() {
    let case = SigningCase::new();
    let ca = IsCa::Ca(BasicConstraints::Unconstrained);
    assert_eq!(case.check(|params| params.is_ca = ca), Err(IssuedMismatch::Authority));
    for usage in [KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign] {
        assert_eq!(case.check(|params| params.key_usages.push(usage)), Err(IssuedMismatch::Authority));
    }
    let found = case.check(|params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    assert!(matches!(found, Err(IssuedMismatch::Usage(_))), "{found:?}");
    for usage in
        [ExtendedKeyUsagePurpose::Any, ExtendedKeyUsagePurpose::CodeSigning, ExtendedKeyUsagePurpose::OcspSigning]
    {
        let found = case.check(|params| params.extended_key_usages.push(usage));
        assert!(matches!(found, Err(IssuedMismatch::Usage(_))), "{found:?}");
    }
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth] {
        let found = case.check(|params| params.extended_key_usages = vec![usage]);
        assert!(matches!(found, Err(IssuedMismatch::Usage(_))), "{found:?}");
    }
}

#[test]
fn rejects_an_unknown_critical_extension() {
    let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
    extension.set_criticality(true);
    let found = SigningCase::new().check(|params| params.custom_extensions.push(extension));
    assert_eq!(found, Err(IssuedMismatch::Critical("1.3.6.1.4.1.99999.1".to_owned())));
}

#[test]
fn rejects_times_that_were_not_asked_for() {
    let case = SigningCase::new();
    let found = case.check(|params| params.not_after += Duration::from_secs(300));
    assert!(matches!(found, Err(IssuedMismatch::Lifetime { asked: 3600, .. })), "{found:?}");
    assert_eq!(case.check(|params| params.not_before += Duration::from_secs(300)), Err(IssuedMismatch::Time));
    let past = |params: &mut CertificateParams| {
        params.not_before -= 2 * HOUR;
        params.not_after -= 2 * HOUR;
    };
    assert_eq!(case.check(past), Err(IssuedMismatch::Time));
}

#[test]
fn rejects_a_chain_that_leads_to_no_root_of_the_mesh() {
    let case = SigningCase::new();
    let leaf = case.signed(|_| {});
    let check = |chain: &[Certificate], roots: &[Certificate]| case.request.check(chain, roots, HOUR, case.now);
    let (_, other) = authority("root", None, case.now);
    let chained = |chain: &[Certificate], roots: &[Certificate]| {
        let found = check(chain, roots);
        assert!(matches!(found, Err(IssuedMismatch::Chain(_))), "{found:?}");
    };
    chained(std::slice::from_ref(&leaf), &[]);
    chained(std::slice::from_ref(&leaf), std::slice::from_ref(&other));
    // A root in the chain is not a trust anchor.
    chained(&[leaf.clone(), case.root.clone()], std::slice::from_ref(&other));
    assert_eq!(check(&[leaf.clone(), other], std::slice::from_ref(&case.root)), Err(IssuedMismatch::Order(2)));
    assert_eq!(check(&[], std::slice::from_ref(&case.root)), Err(IssuedMismatch::Empty));
    assert_eq!(check(&[leaf, case.root.clone()], std::slice::from_ref(&case.root)), Ok(()));
}

#[test]
fn an_intermediate_must_be_an_authority() {
    let mut case = SigningCase::new();
    let (between, certificate) = authority("between", Some(&case.issuer), case.now);
    let root = std::mem::replace(&mut case.issuer, between);
    let chain = [case.signed(|_| {}), certificate];
    assert_eq!(case.request.check(&chain, std::slice::from_ref(&case.root), HOUR, case.now), Ok(()));
    // A workload of the mesh signs for another one.
    let (workload, _) = authority("workload", None, case.now);
    let mut params = case.params();
    params.distinguished_name.push(DnType::CommonName, "workload");
    let certificate = Certificate::parse(params.signed_by(workload.key(), &root).unwrap().der()).unwrap();
    case.issuer = workload;
    let found =
        case.request.check(&[case.signed(|_| {}), certificate], std::slice::from_ref(&case.root), HOUR, case.now);
    assert!(matches!(found, Err(IssuedMismatch::Chain(_))), "{found:?}");
}

#[test]
fn a_serving_certificate_names_no_host_that_was_not_asked_for() {
    let case = SigningCase::new();
    let hosts = ["istiod.istio-system.svc".to_owned(), "127.0.0.1".to_owned()];
    let check = |names: &[&str]| {
        let leaf = case.signed(|params| {
            params.subject_alt_names =
                CertificateParams::new(names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>())
                    .unwrap()
                    .subject_alt_names;
        });
        check_serving(&case.key, &hosts, &[leaf], std::slice::from_ref(&case.root), HOUR, case.now)
    };
    assert_eq!(check(&["istiod.istio-system.svc", "127.0.0.1"]), Ok(()));
    assert_eq!(check(&["istiod.istio-system.svc"]), Ok(()));
    assert!(matches!(check(&["istiod.istio-system.svc", "10.0.0.1"]), Err(IssuedMismatch::Name(_))));
    assert!(matches!(check(&["istiod.istio-system.svc", "shop.example"]), Err(IssuedMismatch::Name(_))));
    let other = PrivateKey::generate(KeyType::P256).unwrap();
    let leaf = case.signed(|_| {});
    assert_eq!(check_serving(&other, &hosts, &[leaf], &[], HOUR, case.now), Err(IssuedMismatch::Key));
}
