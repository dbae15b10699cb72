//! DER encoding of workload certificates. The parts that all leaves of a signer share are copied from one that rcgen made, so that a
//! certificate costs little besides its signature. `authority` decides names and validity.

use std::time::SystemTime;

use rcgen::SigningKey;
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::der::{BIT_STRING, INTEGER, OCTET_STRING, SEQUENCE, SUBJECT_ALT_NAME, elements, general_names, wrapped};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `extensions` of a TBSCertificate.
const EXTENSIONS: u8 = 0xa3;

/// The parts that all leaves of one signer share.
pub(crate) struct LeafTemplate {
    version: Vec<u8>,
    algorithm: Vec<u8>,
    issuer: Vec<u8>,
    subject: Vec<u8>,
    before_names: Vec<u8>,
    /// The subjectAltName extension without its value: OID and critical flag.
    names: Vec<u8>,
    after_names: Vec<u8>,
}

/// The parts of one leaf.
pub(crate) struct LeafFields<'a> {
    pub(crate) serial: &'a [u8],
    pub(crate) not_before: SystemTime,
    pub(crate) not_after: SystemTime,
    pub(crate) uris: &'a [String],
    /// The SubjectPublicKeyInfo, as DER.
    pub(crate) public_key: &'a [u8],
}

impl LeafTemplate {
    /// From any leaf with SANs. `None`: it has none.
    pub(crate) fn of(leaf: &[u8]) -> Option<LeafTemplate> {
        let [body, ..] = elements(leaf)?[..] else { return None };
        let [version, _, algorithm, issuer, _, subject, _, extensions] = elements(body)?[..] else { return None };
        let [extensions] = elements(extensions)?[..] else { return None };
        let extensions = elements(extensions)?;
        let at = extensions.iter().position(|it| elements(it).is_some_and(|parts| parts[0] == SUBJECT_ALT_NAME))?;
        let names = elements(extensions[at])?;
        Some(LeafTemplate {
            version: version.to_vec(),
            algorithm: algorithm.to_vec(),
            issuer: issuer.to_vec(),
            subject: subject.to_vec(),
            before_names: extensions[..at].concat(),
            names: names[..names.len() - 1].concat(),
            after_names: extensions[at + 1..].concat(),
        })
    }

    pub(crate) fn signed(
        &self,
        own: &LeafFields<'_>,
        key: &impl SigningKey,
    ) -> Result<CertificateDer<'static>, rcgen::Error> {
        let body = self.body(own);
        let signature = key.sign(&body)?;
        let signature = wrapped(BIT_STRING, &[&[0], &signature]);
        Ok(wrapped(SEQUENCE, &[&body, &self.algorithm, &signature]).into())
    }

    fn body(&self, own: &LeafFields<'_>) -> Vec<u8> {
        let serial = wrapped(INTEGER, &[own.serial]);
        let validity = wrapped(SEQUENCE, &[&encode_time(own.not_before), &encode_time(own.not_after)]);
        let names = wrapped(OCTET_STRING, &[&general_names(own.uris)]);
        let names = wrapped(SEQUENCE, &[&self.names, &names]);
        let extensions = wrapped(SEQUENCE, &[&self.before_names, &names, &self.after_names]);
        let extensions = wrapped(EXTENSIONS, &[&extensions]);
        let parts =
            [&self.version, &serial, &self.algorithm, &self.issuer, &validity, &self.subject].map(Vec::as_slice);
        wrapped(SEQUENCE, &[&parts.concat(), own.public_key, &extensions])
    }
}

/// UTCTime for years below 2050, as RFC 5280 requires.
fn encode_time(time: SystemTime) -> Vec<u8> {
    let time = OffsetDateTime::from(time);
    let (year, month) = (time.year(), u8::from(time.month()));
    let rest = format!("{month:02}{:02}{:02}{:02}{:02}Z", time.day(), time.hour(), time.minute(), time.second());
    match year {
        1950..2050 => wrapped(UTC_TIME, &[format!("{:02}", year % 100).as_bytes(), rest.as_bytes()]),
        _ => wrapped(GENERALIZED_TIME, &[format!("{year:04}").as_bytes(), rest.as_bytes()]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use rcgen::{
        CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
        SerialNumber,
    };

    use super::*;
    use crate::{KeyType, RootOptions};

    /// As rcgen encodes it.
    fn made(issuer: &Issuer<'_, KeyPair>, key: &KeyPair, serial: &[u8], uris: &[String], end: SystemTime) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap())).collect();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        params.serial_number = Some(SerialNumber::from_slice(serial));
        params.not_before = OffsetDateTime::from(UNIX_EPOCH + Duration::from_secs(1_700_000_007));
        params.not_after = OffsetDateTime::from(end);
        params.signed_by(key, issuer).unwrap().der().to_vec()
    }

    #[test]
    fn encodes_like_rcgen() {
        let serial = [0x41; 16];
        let years = |count: u64| UNIX_EPOCH + Duration::from_secs(count * 365 * 86_400);
        let short = vec!["spiffe://d/ns/a/sa/b".to_owned()];
        let long = vec![format!("spiffe://d/ns/{}/sa/b", "n".repeat(253)), "spiffe://old/ns/a/sa/b".to_owned()];
        for kind in [KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
            let options =
                RootOptions { key: kind, lifetime: Duration::from_secs(3600), organization: "shop".to_owned() };
            let (root_key, root) = options.generate(SystemTime::now()).unwrap();
            let issuer = Issuer::from_ca_cert_der(&root.der, KeyPair::from_pem(&root_key.pem()).unwrap()).unwrap();
            let key = KeyPair::generate().unwrap();
            let shared = LeafTemplate::of(&made(&issuer, &key, &[1], &short, years(30))).unwrap();
            for (uris, end) in [(&short, years(60)), (&long, years(60)), (&short, years(90)), (&long, years(300))] {
                let theirs = made(&issuer, &key, &serial, uris, end);
                let own = LeafFields {
                    serial: &serial,
                    not_before: UNIX_EPOCH + Duration::from_secs(1_700_000_007),
                    not_after: end,
                    uris,
                    public_key: &rcgen::PublicKeyData::subject_public_key_info(&key),
                };
                let ours = shared.signed(&own, issuer.key()).unwrap();
                let [theirs, ours] = [elements(&theirs).unwrap(), elements(&ours).unwrap()];
                // ECDSA signatures are randomized.
                assert_eq!((theirs[0], theirs[1]), (ours[0], ours[1]), "{kind} {uris:?}");
            }
        }
    }
}
