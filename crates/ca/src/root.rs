//! The self-signed root: made once, kept in a folder, renewed with the same key before it ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyUsagePurpose};
use time::OffsetDateTime;

use crate::{Authority, Certificate, KeyType, Private, Unusable, authority::serial, bundle};

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
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
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
        if self.read()?.is_none() {
            let (key, root) = options.made(now)?;
            self.write(KEY, key.pem().as_bytes())?;
            self.write(CERTIFICATE, root.pem().as_bytes())?;
        }
        self.known(options, grace_percent, now)
    }

    /// The root of the folder, which must be there: a server that lost its files must not begin a new trust.
    pub fn known(&self, options: &RootOptions, grace_percent: u32, now: SystemTime) -> Result<Authority, KeepError> {
        self.mend()?;
        let (key, mut root) = self.read()?.ok_or_else(|| KeepError::Lost(self.0.clone()))?;
        if due(&root, grace_percent, now) {
            root = options.root_of(&key, now)?;
            self.write(CERTIFICATE, root.pem().as_bytes())?;
        }
        let mut roots = vec![root.clone()];
        roots.extend(self.other_roots()?.into_iter().filter(|other| *other != root));
        Authority::new(&key, vec![root], roots, now).map_err(|why| self.unusable(why))
    }

    fn read(&self) -> Result<Option<(Private, Certificate)>, KeepError> {
        let (key, certificate) = (self.text(KEY)?, self.text(CERTIFICATE)?);
        let (key, certificate) = match (key, certificate) {
            // A first start that ended between the two files: nothing was signed yet.
            (_, None) => return Ok(None),
            (None, Some(_)) => return Err(self.unusable(Unusable::Key)),
            (Some(key), Some(certificate)) => (key, certificate),
        };
        let key = Private::from_pem(&zeroize::Zeroizing::new(key)).map_err(|_| self.unusable(Unusable::Key))?;
        let mut found = bundle(&certificate).map_err(|why| self.unusable(why))?;
        Ok(Some((key, found.remove(0))))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, KeepError> {
        let path = self.0.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(KeepError::File { path, error }),
        }
    }

    /// Whole or not at all, readable by the owner alone.
    pub(crate) fn write(&self, name: &str, content: &[u8]) -> Result<(), KeepError> {
        let path = self.0.join(name);
        let write = || {
            private_folder(&self.0)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
            io::Write::write_all(&mut file, content)?;
            file.as_file().sync_all()?;
            file.persist(&path).map_err(|e| e.error)?;
            Ok(())
        };
        write().map_err(|error| KeepError::File { path: path.clone(), error })
    }

    pub(crate) fn unusable(&self, why: Unusable) -> KeepError {
        KeepError::Unusable { path: self.0.clone(), why }
    }
}

fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn due(root: &Certificate, grace_percent: u32, now: SystemTime) -> bool {
    let life = root.not_after.duration_since(root.not_before).unwrap_or_default();
    let left = root.not_after.duration_since(now).unwrap_or_default();
    left < life * grace_percent.min(100) / 100
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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
        fs::remove_file(kept.0.join(KEY)).unwrap();
        assert!(kept.authority(&options(), 20, now).is_err());
        assert_eq!(fs::read(kept.0.join(CERTIFICATE)).unwrap(), certificate);
    }
}
