//! Looks for keys and tokens in what programs wrote down: logs, dumps, metrics.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Where a secret was found, and which.
pub(crate) fn folder(root: &Path) -> Result<Vec<String>> {
    let mut secrets = vec!["PRIVATE KEY".to_owned()];
    for file in fs::read_dir(root)?.flatten().filter(|file| file.path().extension().is_some_and(|it| it == "token")) {
        secrets.push(fs::read_to_string(file.path())?.trim().to_owned());
    }
    let keys = fs::read_to_string(root.join("state/ca/ca-key.pem"))?;
    secrets.extend(keys.lines().filter(|line| !line.starts_with("-----")).map(str::to_owned));
    let mut found = Vec::new();
    for file in fs::read_dir(root.join("logs"))?.flatten() {
        let text = String::from_utf8_lossy(&fs::read(file.path())?).into_owned();
        let name = file.file_name().to_string_lossy().into_owned();
        for secret in secrets.iter().filter(|secret| leaked(&text, secret)) {
            found.push(format!("{name}: {}...", &secret[..secret.len().min(12)]));
        }
    }
    Ok(found)
}

/// As it stands, or as it stands in JSON and in bytes of protobuf that were printed in base64.
fn leaked(text: &str, secret: &str) -> bool {
    use base64::Engine;
    // Three ways to fall into groups of three bytes; the ends depend on the neighbours.
    let encoded = (0..3).map(|skip| base64::engine::general_purpose::STANDARD_NO_PAD.encode(&secret[skip..]));
    let middle = |text: String| text[..text.len() - 4].to_owned();
    text.contains(secret) || encoded.map(middle).any(|encoded| text.contains(&encoded))
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
