//! The self-signed root: created once, stored in a folder, renewed with the same key before it expires.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose};
use time::OffsetDateTime;
use zeroize::Zeroizing;

use crate::{
    Authority, Certificate, FileError, InvalidCertificate, KeyType, PrivateKey, authority::serial, bundle,
    folder::Folder,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootOptions {
    pub key: KeyType,
    /// CITADEL_SELF_SIGNED_CA_CERT_TTL.
    pub lifetime: Duration,
    /// The trust domain.
    pub organization: String,
}

/// The file names are those in the Secret `istio-ca-secret`.
pub(crate) const KEY: &str = "ca-key.pem";
pub(crate) const CERTIFICATE: &str = "ca-cert.pem";

/// The folder of the root.
#[derive(Clone, Debug)]
pub struct RootFolder(pub PathBuf);

#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error(transparent)]
    File(#[from] FileError),
    /// Neither is created again: a key without its certificate may be the only copy, and all that it signed would lose its issuer.
    #[error(
        "{} holds {found} without {missing}; nothing was changed: restore {missing} from a backup, or remove {found} too to {instead}",
        path.display()
    )]
    Half { path: PathBuf, found: &'static str, missing: &'static str, instead: &'static str },
    /// Never replaced by a new root: every certificate of the mesh would lose its issuer.
    #[error(
        "{} holds a root that cannot be used: {why}; restore {KEY} and {CERTIFICATE} from a backup, or remove both to create a new root",
        path.display()
    )]
    InvalidCertificate { path: PathBuf, why: InvalidCertificate },
    #[error("{} no longer holds the root; restore {KEY} and {CERTIFICATE}, the old one signs until then", .0.display())]
    Lost(PathBuf),
    #[error("cannot make a root: {0}")]
    Crypto(#[from] rcgen::Error),
}

impl RootOptions {
    pub fn generate(&self, now: SystemTime) -> Result<(PrivateKey, Certificate), rcgen::Error> {
        let key = PrivateKey::generate(self.key)?;
        let root = self.root_of(&key, now)?;
        Ok((key, root))
    }

    fn root_of(&self, key: &PrivateKey, now: SystemTime) -> Result<Certificate, rcgen::Error> {
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

impl RootFolder {
    /// The root of the folder, or a new one. Renewed with the same key (its signatures stay valid) when less
    /// than `grace_percent` of its lifetime is left.
    pub fn authority(
        &self,
        options: &RootOptions,
        grace_percent: u32,
        now: SystemTime,
    ) -> Result<Authority, RootError> {
        self.folder().create()?;
        let _lock = self.folder().lock()?;
        self.folder().remove_temporary_files()?;
        if self.read()?.is_none() {
            let (key, root) = options.generate(now)?;
            self.folder().write(&[(KEY, &key.pem()), (CERTIFICATE, &root.pem())])?;
        }
        self.load(options, grace_percent, now)
    }

    /// The existing root of the folder: a server that lost its files must not create a new one.
    pub fn known(&self, options: &RootOptions, grace_percent: u32, now: SystemTime) -> Result<Authority, RootError> {
        let _lock = self.folder().lock()?;
        self.load(options, grace_percent, now)
    }

    fn load(&self, options: &RootOptions, grace_percent: u32, now: SystemTime) -> Result<Authority, RootError> {
        self.complete_interrupted_switch()?;
        let (key, mut root) = self.read()?.ok_or_else(|| RootError::Lost(self.0.clone()))?;
        if due(&root, grace_percent, now) {
            root = options.root_of(&key, now)?;
            self.folder().write(&[(CERTIFICATE, &root.pem())])?;
        }
        let mut roots = vec![root.clone()];
        roots.extend(self.other_roots()?.into_iter().filter(|other| *other != root));
        Authority::new(&key, vec![root], roots, now).map_err(|why| self.unusable(why))
    }

    fn read(&self) -> Result<Option<(PrivateKey, Certificate)>, RootError> {
        let (key, certificate) = match (self.text(KEY)?, self.text(CERTIFICATE)?) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err(self.incomplete(KEY, CERTIFICATE)),
            (None, Some(_)) => return Err(self.incomplete(CERTIFICATE, KEY)),
            (Some(key), Some(certificate)) => (key, certificate),
        };
        let key = PrivateKey::from_pem(&key).map_err(|_| self.unusable(InvalidCertificate::Key))?;
        let mut found = bundle(&certificate).map_err(|why| self.unusable(why))?;
        Ok(Some((key, found.remove(0))))
    }

    pub(crate) fn folder(&self) -> Folder<'_> {
        Folder(&self.0)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<Zeroizing<String>>, RootError> {
        Ok(self.folder().read(name)?)
    }

    pub(crate) fn incomplete(&self, found: &'static str, missing: &'static str) -> RootError {
        let instead = match found {
            KEY | CERTIFICATE => "create a new root",
            _ => "abort the rotation",
        };
        RootError::Half { path: self.0.clone(), found, missing, instead }
    }

    pub(crate) fn unusable(&self, why: InvalidCertificate) -> RootError {
        RootError::InvalidCertificate { path: self.0.clone(), why }
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
        let root_folder = RootFolder(folder.path().join("ca"));
        let now = SystemTime::now();
        let first = root_folder.authority(&options(), 20, now).unwrap();
        let second = root_folder.authority(&options(), 20, now + YEAR).unwrap();
        assert_eq!(first.roots_pem(), second.roots_pem());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&root_folder.0), mode(&root_folder.0.join(KEY))), (0o700, 0o600));
    }

    #[test]
    fn a_root_near_its_end_is_renewed_with_the_same_key() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().to_owned());
        let now = SystemTime::now();
        let old = root_folder.authority(&options(), 20, now).unwrap();
        let csr = crate::Csr::parse(&crate::csr::tests::request(KeyType::P256)).unwrap();
        let identity = "spiffe://cluster.local/ns/a/sa/b".parse().unwrap();
        let leaf = &crate::bundle(&old.sign(&csr, &[identity], YEAR, now).unwrap()[0]).unwrap()[0];
        let new = root_folder.authority(&options(), 20, now + 9 * YEAR).unwrap();
        assert_ne!(old.roots_pem(), new.roots_pem());
        assert!(leaf.is_signed_by(&new.roots()[0]));
    }

    #[test]
    fn a_lost_root_is_not_recreated_at_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().join("ca"));
        let now = SystemTime::now();
        root_folder.authority(&options(), 20, now).unwrap();
        fs::remove_dir_all(&root_folder.0).unwrap();
        assert!(matches!(root_folder.known(&options(), 20, now), Err(RootError::Lost(_))));
        assert!(!root_folder.0.exists());
    }

    #[test]
    fn a_broken_root_is_never_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().to_owned());
        let now = SystemTime::now();
        root_folder.authority(&options(), 20, now).unwrap();
        let certificate = fs::read(root_folder.0.join(CERTIFICATE)).unwrap();
        fs::write(root_folder.0.join(KEY), "lost").unwrap();
        let error = root_folder.authority(&options(), 20, now).err().unwrap().to_string();
        assert!(error.contains("backup") && error.contains("private key"), "{error}");
        assert_eq!(fs::read(root_folder.0.join(CERTIFICATE)).unwrap(), certificate);
    }

    #[test]
    fn rejects_a_key_without_its_certificate_and_the_reverse() {
        for (lost, left) in [(CERTIFICATE, KEY), (KEY, CERTIFICATE)] {
            let folder = tempfile::tempdir().unwrap();
            let root_folder = RootFolder(folder.path().to_owned());
            let now = SystemTime::now();
            let first = root_folder.authority(&options(), 20, now).unwrap();
            let backup = fs::read(root_folder.0.join(lost)).unwrap();
            let before = fs::read(root_folder.0.join(left)).unwrap();
            fs::remove_file(root_folder.0.join(lost)).unwrap();
            for error in [root_folder.authority(&options(), 20, now), root_folder.known(&options(), 20, now)] {
                let error = error.err().unwrap().to_string();
                assert!(error.contains(lost) && error.contains(left) && error.contains("restore"), "{error}");
            }
            assert_eq!(fs::read(root_folder.0.join(left)).unwrap(), before, "what survived is as it was");
            assert!(!root_folder.0.join(lost).exists());
            fs::write(root_folder.0.join(lost), backup).unwrap();
            assert_eq!(root_folder.authority(&options(), 20, now).unwrap().roots_pem(), first.roots_pem());
        }
    }

    #[test]
    fn a_start_removes_what_an_interrupted_write_left() {
        let folder = tempfile::tempdir().unwrap();
        let root_folder = RootFolder(folder.path().to_owned());
        let now = SystemTime::now();
        let first = root_folder.authority(&options(), 20, now).unwrap();
        fs::copy(root_folder.0.join(KEY), root_folder.0.join(".tmpQ1w2E3")).unwrap();
        assert_eq!(root_folder.authority(&options(), 20, now).unwrap().roots_pem(), first.roots_pem());
        let mut names: Vec<_> = fs::read_dir(&root_folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [CERTIFICATE, KEY]);
    }
}
