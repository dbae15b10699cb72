//! Meltemi's own tokens of service accounts, for meshes without a Kubernetes API server.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, JwkSet},
};
use serde_json::json;
use zeroize::Zeroizing;

use crate::{KeyType, Private, TokenRules};

const KEY: &str = "token-key.pem";

pub struct Issuer {
    key: EncodingKey,
    public: Jwk,
}

#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} is not a private key; remove it to begin with a new one (tokens of the old one end)", .0.display())]
    Key(PathBuf),
    #[error("cannot make a key: {0}")]
    Crypto(#[from] rcgen::Error),
    #[error("cannot make a token: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
}

impl Issuer {
    pub const NAME: &str = "meltemi";

    /// The issuer of a state folder; its key is made by the first call.
    pub fn open(folder: &Path) -> Result<Issuer, IssuerError> {
        let path = folder.join(KEY);
        let file = |error| IssuerError::File { path: path.clone(), error };
        let pem = match fs::read_to_string(&path) {
            Ok(pem) => Zeroizing::new(pem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let pem = Private::generate(KeyType::P256)?.pem();
                keep(folder, &path, &pem).map_err(file)?;
                // Somebody else may have been first.
                Zeroizing::new(fs::read_to_string(&path).map_err(file)?)
            }
            Err(error) => return Err(file(error)),
        };
        let key = EncodingKey::from_ec_pem(pem.as_bytes()).map_err(|_| IssuerError::Key(path.clone()))?;
        let public = Jwk::from_encoding_key(&key, Algorithm::ES256).map_err(|_| IssuerError::Key(path))?;
        Ok(Issuer { key, public })
    }

    pub fn token(
        &self,
        namespace: &str,
        account: &str,
        audience: &str,
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<String, IssuerError> {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claims = json!({
            "iss": Issuer::NAME,
            "sub": format!("system:serviceaccount:{namespace}:{account}"),
            "aud": [audience],
            "iat": now,
            "exp": now.saturating_add(lifetime.as_secs()),
        });
        Ok(encode(&Header::new(Algorithm::ES256), &claims, &self.key)?)
    }

    pub fn rules(&self) -> TokenRules {
        TokenRules { issuer: Issuer::NAME.to_owned(), keys: JwkSet { keys: vec![self.public.clone()] } }
    }
}

/// Whole, readable by the owner alone, and never over a key that is already there.
fn keep(folder: &Path, path: &Path, pem: &str) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut file, pem.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_share_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (Issuer::open(folder.path()).unwrap(), Issuer::open(folder.path()).unwrap());
        assert_eq!(one.public, two.public);
    }

    #[test]
    fn a_broken_key_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(KEY), "lost").unwrap();
        assert!(Issuer::open(folder.path()).err().unwrap().to_string().contains(KEY));
        assert_eq!(fs::read(folder.path().join(KEY)).unwrap(), b"lost");
    }
}
