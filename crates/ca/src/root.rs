//! The self-signed root: made once, kept in a folder, renewed with the same key before it ends.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{Authority, Certificate, FileError, KeyType, Private, Unusable, authority::serial, bundle, folder::Folder};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootOptions {
    pub key: KeyType,
    /// CITADEL_SELF_SIGNED_CA_CERT_TTL.
    pub lifetime: Duration,
    /// The trust domain.
    pub organization: String,
}

/// The names are those of the Secret `istio-ca-secret`.
pub(crate) const KEY: &str = "ca-key.pem";
pub(crate) const CERTIFICATE: &str = "ca-cert.pem";

/// The folder of the root.
#[derive(Clone, Debug)]
pub struct Kept(pub PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Neither is made anew: a key without its certificate may be the only copy, and all that it signed would lose its issuer.
    #[error(
        "{} holds {found} without {missing}; nothing was changed: restore {missing} from a backup, or remove {found} too to {instead}",
        path.display()
    )]
    Half { path: PathBuf, found: &'static str, missing: &'static str, instead: &'static str },
    /// Never replaced by a new root: every certificate of the mesh would lose its issuer.
    #[error(
        "{} holds a root that cannot be used: {why}; restore {KEY} and {CERTIFICATE} from a backup, or remove both to begin a new trust",
        path.display()
    )]
    Unusable { path: PathBuf, why: Unusable },
    #[error("{} no longer holds the root; restore {KEY} and {CERTIFICATE}, the old one signs until then", .0.display())]
    Lost(PathBuf),
    #[error("cannot make a root: {0}")]
    Crypto(#[from] rcgen::Error),
}

impl RootOptions {
    pub fn made(&self, now: SystemTime) -> Result<(Private, Certificate), rcgen::Error> {
        let key = Private::generate(self.key)?;
        let root = self.root_of(&key, now)?;
        Ok((key, root))
    }

    fn root_of(&self, key: &Private, now: SystemTime) -> Result<Certificate, rcgen::Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, self.organization.as_str());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(serial()?.to_vec().into());
        params.not_before = OffsetDateTime::from(now);
        params.not_after = OffsetDateTime::from(now.checked_add(self.lifetime).unwrap_or(now));
        let made = params.self_signed(&key.0)?;
        Certificate::parse(made.der()).ok_or(rcgen::Error::CouldNotParseCertificate)
    }
}

impl Kept {
    /// The root of the folder, or a new one kept there. Renewed with the same key (what it signed stays valid) when less
    /// than `grace_percent` of its life is left.
    pub fn authority(
        &self,
        options: &RootOptions,
        grace_percent: u32,
        now: SystemTime,
    ) -> Result<Authority, KeepError> {
        self.folder().create()?;
        let _lock = self.folder().lock()?;
        self.folder().remove_temporary_files()?;
        if self.read()?.is_none() {
            let (key, root) = options.made(now)?;
            self.folder().write(&[(KEY, &key.pem()), (CERTIFICATE, &root.pem())])?;
        }
        self.loaded(options, grace_percent, now)
    }

    /// The root of the folder, which must be there: a server that lost its files must not begin a new trust.
    pub fn known(&self, options: &RootOptions, grace_percent: u32, now: SystemTime) -> Result<Authority, KeepError> {
        let _lock = self.folder().lock()?;
        self.loaded(options, grace_percent, now)
    }

    fn loaded(&self, options: &RootOptions, grace_percent: u32, now: SystemTime) -> Result<Authority, KeepError> {
        self.mend()?;
        let (key, mut root) = self.read()?.ok_or_else(|| KeepError::Lost(self.0.clone()))?;
        if due(&root, grace_percent, now) {
            root = options.root_of(&key, now)?;
            self.folder().write(&[(CERTIFICATE, &root.pem())])?;
        }
        let mut roots = vec![root.clone()];
        roots.extend(self.other_roots()?.into_iter().filter(|other| *other != root));
        Authority::new(&key, vec![root], roots, now).map_err(|why| self.unusable(why))
    }

    fn read(&self) -> Result<Option<(Private, Certificate)>, KeepError> {
        let (key, certificate) = match (self.text(KEY)?, self.text(CERTIFICATE)?) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(self.half(KEY, CERTIFICATE)),
            (None, Some(_)) => return Err(self.half(CERTIFICATE, KEY)),
            (Some(key), Some(certificate)) => (key, certificate),
        };
        let key = Private::from_pem(&key).map_err(|_| self.unusable(Unusable::Key))?;
        let mut found = bundle(&certificate).map_err(|why| self.unusable(why))?;
        Ok(Some((key, found.remove(0))))
    }

    pub(crate) fn folder(&self) -> Folder<'_> {
        Folder(&self.0)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<Zeroizing<String>>, KeepError> {
        Ok(self.folder().read(name)?)
    }

    pub(crate) fn half(&self, found: &'static str, missing: &'static str) -> KeepError {
        let instead = match found {
            KEY | CERTIFICATE => "begin a new trust",
            _ => "give up the change of roots",
        };
        KeepError::Half { path: self.0.clone(), found, missing, instead }
    }

    pub(crate) fn unusable(&self, why: Unusable) -> KeepError {
        KeepError::Unusable { path: self.0.clone(), why }
    }
}

fn due(root: &Certificate, grace_percent: u32, now: SystemTime) -> bool {
    let life = root.not_after.duration_since(root.not_before).unwrap_or_default();
    let left = root.not_after.duration_since(now).unwrap_or_default();
    left < life * grace_percent.min(100) / 100
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 86_400);

    fn options() -> RootOptions {
        RootOptions { key: KeyType::P256, lifetime: 10 * YEAR, organization: "cluster.local".to_owned() }
    }

    #[test]
    fn the_second_start_has_the_same_root() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().join("ca"));
        let now = SystemTime::now();
        let first = kept.authority(&options(), 20, now).unwrap();
        let second = kept.authority(&options(), 20, now + YEAR).unwrap();
        assert_eq!(first.roots_pem(), second.roots_pem());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&kept.0), mode(&kept.0.join(KEY))), (0o700, 0o600));
    }

    #[test]
    fn a_root_near_its_end_is_renewed_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().to_owned());
        let now = SystemTime::now();
        let old = kept.authority(&options(), 20, now).unwrap();
        let csr = crate::Csr::parse(&crate::csr::tests::request(KeyType::P256)).unwrap();
        let identity = "spiffe://cluster.local/ns/a/sa/b".parse().unwrap();
        let leaf = &crate::bundle(&old.sign(&csr, &[identity], YEAR, now).unwrap()[0]).unwrap()[0];
        let new = kept.authority(&options(), 20, now + 9 * YEAR).unwrap();
        assert_ne!(old.roots_pem(), new.roots_pem());
        assert!(leaf.is_signed_by(&new.roots()[0]));
    }

    #[test]
    fn a_root_that_went_is_not_made_anew_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().join("ca"));
        let now = SystemTime::now();
        kept.authority(&options(), 20, now).unwrap();
        fs::remove_dir_all(&kept.0).unwrap();
        assert!(matches!(kept.known(&options(), 20, now), Err(KeepError::Lost(_))));
        assert!(!kept.0.exists());
    }

    #[test]
    fn a_broken_root_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().to_owned());
        let now = SystemTime::now();
        kept.authority(&options(), 20, now).unwrap();
        let certificate = fs::read(kept.0.join(CERTIFICATE)).unwrap();
        fs::write(kept.0.join(KEY), "lost").unwrap();
        let error = kept.authority(&options(), 20, now).err().unwrap().to_string();
        assert!(error.contains("backup") && error.contains("private key"), "{error}");
        assert_eq!(fs::read(kept.0.join(CERTIFICATE)).unwrap(), certificate);
    }

    #[test]
    fn rejects_a_key_without_its_certificate_and_the_reverse() {
        for (lost, left) in [(CERTIFICATE, KEY), (KEY, CERTIFICATE)] {
            let folder = tempfile::tempdir().unwrap();
            let kept = Kept(folder.path().to_owned());
            let now = SystemTime::now();
            let first = kept.authority(&options(), 20, now).unwrap();
            let backup = fs::read(kept.0.join(lost)).unwrap();
            let before = fs::read(kept.0.join(left)).unwrap();
            fs::remove_file(kept.0.join(lost)).unwrap();
            for error in [kept.authority(&options(), 20, now), kept.known(&options(), 20, now)] {
                let error = error.err().unwrap().to_string();
                assert!(error.contains(lost) && error.contains(left) && error.contains("restore"), "{error}");
            }
            assert_eq!(fs::read(kept.0.join(left)).unwrap(), before, "what survived is as it was");
            assert!(!kept.0.join(lost).exists());
            fs::write(kept.0.join(lost), backup).unwrap();
            assert_eq!(kept.authority(&options(), 20, now).unwrap().roots_pem(), first.roots_pem());
        }
    }

    #[test]
    fn a_start_removes_what_an_interrupted_write_left() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept(folder.path().to_owned());
        let now = SystemTime::now();
        let first = kept.authority(&options(), 20, now).unwrap();
        fs::copy(kept.0.join(KEY), kept.0.join(".tmpQ1w2E3")).unwrap();
        assert_eq!(kept.authority(&options(), 20, now).unwrap().roots_pem(), first.roots_pem());
        let mut names: Vec<_> = fs::read_dir(&kept.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [CERTIFICATE, KEY]);
    }
}
