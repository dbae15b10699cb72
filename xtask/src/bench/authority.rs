//! An authority for one run, made with openssl: control planes get it plugged in, so that all of them trust the same certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// openssl's words for a kind of key.
pub(super) const P256: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];
pub(super) const RSA_2048: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];

pub(super) struct Authority {
    /// With ca-key.pem, ca-cert.pem, cert-chain.pem and root-cert.pem.
    pub(super) folder: PathBuf,
}

impl Authority {
    pub(super) fn new(folder: PathBuf, kind: &[&str]) -> Result<Authority> {
        fs::create_dir_all(&folder)?;
        let (key, root) = (folder.join("ca-key.pem"), folder.join("ca-cert.pem"));
        generate(kind, &key)?;
        let is_authority =
            ["-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign"];
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-new", "-days", "30", "-subj", "/O=bench"]).args(is_authority);
        openssl(command.arg("-key").arg(&key).arg("-out").arg(&root))?;
        for copy in ["root-cert.pem", "cert-chain.pem"] {
            fs::copy(&root, folder.join(copy))?;
        }
        Ok(Authority { folder })
    }

    /// The setting by which a control plane takes it.
    pub(super) fn setting(&self) -> Result<(&str, &str)> {
        Ok(("ROOT_CA_DIR", self.folder.to_str().context("a path in UTF-8")?))
    }
}

pub(super) fn generate(kind: &[&str], file: &Path) -> Result<()> {
    openssl(Command::new("openssl").arg("genpkey").args(kind).arg("-out").arg(file))
}

pub(super) fn openssl(command: &mut Command) -> Result<()> {
    let out = command.output().context("openssl is needed to make keys")?;
    ensure!(out.status.success(), "openssl: {}", String::from_utf8_lossy(&out.stderr));
    Ok(())
}
