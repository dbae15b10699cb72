//! Looks for keys and tokens in all that the programs of the mesh wrote down.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Where a secret was found, and which.
pub(crate) fn folder(root: &Path) -> Result<Vec<String>> {
    let tokens = files(root)?.into_iter().filter(|file| file.extension().is_some_and(|it| it == "token"));
    let secrets: Vec<PathBuf> = tokens.chain([root.join("state/ca/ca-key.pem")]).collect();
    testkit::scan::leaks(&secrets, &files(&root.join("logs"))?)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(fs::read_dir(folder)?.flatten().map(|file| file.path()).collect())
}

#[test]
fn a_planted_canary_is_found() {
    use base64::Engine;
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("logs")).unwrap();
    fs::create_dir_all(root.path().join("state/ca")).unwrap();
    let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49\n-----END PRIVATE KEY-----\n";
    fs::write(root.path().join("state/ca/ca-key.pem"), key).unwrap();
    fs::write(root.path().join("shop-canary.token"), "eyJhbGciOiJFUzI1NiJ9.canary.signature\n").unwrap();
    let log = |text: &str| fs::write(root.path().join("logs/server"), text).unwrap();
    log("INFO a certificate was signed");
    assert!(folder(root.path()).unwrap().is_empty());
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    for planted in [
        "DEBUG header authorization: Bearer eyJhbGciOiJFUzI1NiJ9.canary.signature".to_owned(),
        format!("{{\"inline_bytes\": \"{}\"}}", base64(key)),
        format!("{{\"inline_bytes\": \"{}\"}}", base64(&format!("?{key}"))),
        "-----BEGIN EC PRIVATE KEY-----".to_owned(),
        "key MIGHAgEAMBMGByqGSM49AgEGCCqGSM49".to_owned(),
    ] {
        log(&planted);
        assert!(!folder(root.path()).unwrap().is_empty(), "{planted}");
    }
}
