//! A plugged-in CA: the files of `cacerts`, in istiod's layout or cert-manager's.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use zeroize::Zeroizing;

use crate::{Authority, Certificate, InvalidCertificate, PrivateKey, bundle};

/// The content of a `cacerts` folder.
#[derive(Clone, PartialEq, Eq)]
pub struct PluggedCa {
    key: Zeroizing<String>,
    certificate: String,
    chain: String,
    roots: String,
}

#[derive(Debug, thiserror::Error)]
pub enum PluggedError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} holds {found} without {missing}; add {missing}, or remove {found} to have no plugged-in authority", path.display())]
    Half { path: PathBuf, found: &'static str, missing: &'static str },
    #[error("{}: {why}", path.display())]
    InvalidCertificate { path: PathBuf, why: InvalidCertificate },
}

/// Key, certificate, the chain above it, the roots.
const ISTIO: [&str; 4] = ["ca-key.pem", "ca-cert.pem", "cert-chain.pem", "root-cert.pem"];
/// cert-manager appends the chain to the certificate.
const CERT_MANAGER: [&str; 3] = ["tls.key", "tls.crt", "ca.crt"];

/// `None`: the folder has no CA. A key without its certificate, or the reverse, is an error: falling back to another CA would
/// be wrong.
pub fn plugged(folder: &Path) -> Result<Option<PluggedCa>, PluggedError> {
    let [key, certificate, chain, roots] = ISTIO;
    if let Some((key, certificate)) = pair(folder, key, certificate)? {
        let chain = text(folder, chain)?.unwrap_or_default();
        return Ok(Some(PluggedCa { key, certificate, chain, roots: required(folder, roots)? }));
    }
    let [key, certificate, roots] = CERT_MANAGER;
    let Some((key, certificate)) = pair(folder, key, certificate)? else { return Ok(None) };
    Ok(Some(PluggedCa { key, certificate, chain: String::new(), roots: required(folder, roots)? }))
}

fn pair(
    folder: &Path,
    key: &'static str,
    certificate: &'static str,
) -> Result<Option<(Zeroizing<String>, String)>, PluggedError> {
    let half = |found, missing| Err(PluggedError::Half { path: folder.to_owned(), found, missing });
    match (text(folder, key)?.map(Zeroizing::new), text(folder, certificate)?) {
        (Some(key), Some(certificate)) => Ok(Some((key, certificate))),
        (None, None) => Ok(None),
        (Some(_), None) => half(key, certificate),
        (None, Some(_)) => half(certificate, key),
    }
}

impl PluggedCa {
    pub fn authority(&self, folder: &Path, now: SystemTime) -> Result<Authority, PluggedError> {
        let unusable = |why| PluggedError::InvalidCertificate { path: folder.to_owned(), why };
        let key = PrivateKey::from_pem(&self.key).map_err(|_| unusable(InvalidCertificate::Key))?;
        let mut chain = bundle(&self.certificate).map_err(unusable)?;
        if !self.chain.trim().is_empty() {
            chain.extend(bundle(&self.chain).map_err(unusable)?);
        }
        let roots = bundle(&self.roots).map_err(unusable)?;
        Authority::new(&key, without_repetition(chain), roots, now).map_err(unusable)
    }
}

/// istiod's `cert-chain.pem` begins with the signer itself.
fn without_repetition(chain: Vec<Certificate>) -> Vec<Certificate> {
    let mut once: Vec<Certificate> = Vec::with_capacity(chain.len());
    for certificate in chain {
        if !once.contains(&certificate) {
            once.push(certificate);
        }
    }
    once
}

fn required(folder: &Path, name: &str) -> Result<String, PluggedError> {
    let missing = || PluggedError::File { path: folder.join(name), error: io::ErrorKind::NotFound.into() };
    text(folder, name)?.ok_or_else(missing)
}

fn text(folder: &Path, name: &str) -> Result<Option<String>, PluggedError> {
    let path = folder.join(name);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(PluggedError::File { path, error }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    use super::*;

    struct Pki {
        root: String,
        intermediate: String,
        key: String,
    }

    fn pki() -> Pki {
        let ca = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let (root_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let root = ca("root").self_signed(&root_key).unwrap();
        let intermediate = ca("middle").signed_by(&key, &Issuer::new(ca("root"), root_key)).unwrap();
        Pki { root: root.pem(), intermediate: intermediate.pem(), key: key.serialize_pem() }
    }

    fn read(folder: &Path) -> Result<Option<Authority>, PluggedError> {
        plugged(folder)?.map(|plugged| plugged.authority(folder, SystemTime::now())).transpose()
    }

    #[test]
    fn both_layouts_are_read() {
        let pki = pki();
        for files in [
            vec![
                ("ca-key.pem", pki.key.clone()),
                ("ca-cert.pem", pki.intermediate.clone()),
                ("cert-chain.pem", format!("{}{}", pki.intermediate, pki.root)),
                ("root-cert.pem", pki.root.clone()),
            ],
            vec![("tls.key", pki.key.clone()), ("tls.crt", pki.intermediate.clone()), ("ca.crt", pki.root.clone())],
        ] {
            let folder = tempfile::tempdir().unwrap();
            for (name, content) in files {
                fs::write(folder.path().join(name), content).unwrap();
            }
            let authority = read(folder.path()).unwrap().unwrap();
            let csr = crate::Csr::parse(&crate::csr::tests::request(crate::KeyType::P256)).unwrap();
            let identity = "spiffe://d/ns/a/sa/b".parse().unwrap();
            let chain = authority.sign(&csr, &[identity], Duration::from_secs(60), SystemTime::now()).unwrap();
            assert_eq!(chain.len(), 3, "leaf, intermediate, root");
            let bundled = |pem: &str| bundle(pem).unwrap();
            assert_eq!((bundled(&chain[1]), bundled(&chain[2])), (bundled(&pki.intermediate), bundled(&pki.root)));
        }
    }

    #[test]
    fn an_empty_folder_has_none_and_a_half_one_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_none());
        let pki = pki();
        for (name, other, text) in [
            ("ca-cert.pem", "ca-key.pem", &pki.intermediate),
            ("ca-key.pem", "ca-cert.pem", &pki.key),
            ("tls.crt", "tls.key", &pki.intermediate),
            ("tls.key", "tls.crt", &pki.key),
        ] {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let error = read(folder.path()).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(other), "{error}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn rejects_a_pair_that_does_not_match() {
        let (one, other) = (pki(), pki());
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in [("tls.key", &other.key), ("tls.crt", &one.intermediate), ("ca.crt", &one.root)] {
            fs::write(folder.path().join(name), content).unwrap();
        }
        assert!(read(folder.path()).err().unwrap().to_string().contains("does not belong"));
    }
}
