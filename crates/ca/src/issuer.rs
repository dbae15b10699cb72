//! Meltemi's own service account tokens, for meshes without a Kubernetes API server.

use std::{
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{
    Algorithm, EncodingKey, Header, encode,
    jwk::{Jwk, JwkSet},
};
use serde_json::json;

use crate::{FileError, KeyType, PrivateKey, TokenIssuer, folder::Folder};

const KEY: &str = "token-key.pem";

pub struct Issuer {
    key: EncodingKey,
    public: Jwk,
}

#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is not a private key; remove it to begin with a new one (tokens of the old one end)", .0.display())]
    Key(PathBuf),
    #[error(
        "no server has used the state folder {} yet, so that nobody would believe the token; name the folder of the server with --stateDir, \
         or start the server first",
        .0.display()
    )]
    NoServer(PathBuf),
    #[error("cannot make a key: {0}")]
    Crypto(#[from] rcgen::Error),
    #[error("cannot make a token: {0}")]
    Token(#[from] jsonwebtoken::errors::Error),
}

impl Issuer {
    pub const NAME: &str = "meltemi";

    /// The issuer of a server's state folder; the first call creates its key.
    pub fn open(folder: &Path) -> Result<Issuer, IssuerError> {
        let own = Folder(folder);
        own.create()?;
        let _lock = own.lock()?;
        own.remove_temporary_files()?;
        if own.read(KEY)?.is_none() {
            own.write_new(KEY, &PrivateKey::generate(KeyType::P256)?.pem())?;
        }
        // Without locks another process may have been first.
        Issuer::of_server(folder)
    }

    /// The issuer of a state folder that a server has used: a key that no server has is worth nothing, so that none is made.
    pub fn of_server(folder: &Path) -> Result<Issuer, IssuerError> {
        let path = folder.join(KEY);
        let pem = Folder(folder).read(KEY)?.ok_or_else(|| IssuerError::NoServer(folder.to_owned()))?;
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

    pub fn rules(&self) -> TokenIssuer {
        TokenIssuer { issuer: Issuer::NAME.to_owned(), keys: JwkSet { keys: vec![self.public.clone()] } }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_start_removes_what_an_interrupted_write_left() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".tmpQ1w2E3"), "half a key").unwrap();
        Issuer::open(folder.path()).unwrap();
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [KEY]);
    }

    #[test]
    fn two_processes_share_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (Issuer::open(folder.path()).unwrap(), Issuer::open(folder.path()).unwrap());
        assert_eq!(one.public, two.public);
    }

    #[test]
    fn a_folder_that_no_server_has_used_gets_no_key() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        let error = Issuer::of_server(&other).err().unwrap().to_string();
        assert!(error.contains("--stateDir") && error.contains("other"), "{error}");
        assert!(!other.exists());
        let server = Issuer::open(folder.path()).unwrap();
        assert_eq!(Issuer::of_server(folder.path()).unwrap().public, server.public);
    }

    #[test]
    fn a_broken_key_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(KEY), "lost").unwrap();
        assert!(Issuer::open(folder.path()).err().unwrap().to_string().contains(KEY));
        assert_eq!(fs::read(folder.path().join(KEY)).unwrap(), b"lost");
    }
}
