//! Looks for keys and tokens in what programs wrote down: logs, dumps, metrics.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Where a secret was found, and which. `secrets` are files with a token or keys in PEM; a private key is found whosever it is.
pub fn leaks(secrets: &[PathBuf], written: &[PathBuf]) -> Result<Vec<String>> {
    let mut all = vec!["PRIVATE KEY".to_owned()];
    for file in secrets {
        let text = read(file)?;
        all.extend(
            text.lines().map(str::trim).filter(|line| line.len() > 12 && !line.starts_with("-----")).map(str::to_owned),
        );
    }
    let mut found = Vec::new();
    for file in written {
        let text = read(file)?;
        let name = file.file_name().unwrap_or_default().display();
        let leaks = all.iter().filter(|secret| leaked(&text, secret));
        found.extend(leaks.map(|secret| format!("{name}: {}...", &secret[..secret.len().min(12)])));
    }
    Ok(found)
}

fn read(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| file.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// As it stands, or as it stands in JSON and in bytes of protobuf that were printed in base64.
fn leaked(text: &str, secret: &str) -> bool {
    // Three ways to fall into groups of three bytes; the ends depend on the neighbours.
    let encoded = (0..3).map(|skip| STANDARD_NO_PAD.encode(&secret[skip..]));
    let middle = |text: String| text[..text.len() - 4].to_owned();
    text.contains(secret) || encoded.map(middle).any(|encoded| text.contains(&encoded))
}
