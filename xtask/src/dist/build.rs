//! The static program for each architecture: linked with everything it needs, so that it runs on any Linux of the architecture.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::image::path_flags;
use crate::{progress, project};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Amd64,
    Arm64,
}

impl Target {
    pub(super) const ALL: [Target; 2] = [Target::Amd64, Target::Arm64];

    /// As images and Kubernetes call it.
    pub(super) fn architecture(self) -> &'static str {
        match self {
            Target::Amd64 => "amd64",
            Target::Arm64 => "arm64",
        }
    }

    pub(super) fn triple(self) -> &'static str {
        match self {
            Target::Amd64 => "x86_64-unknown-linux-gnu",
            Target::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    pub(super) fn is_here(self) -> bool {
        self.triple().starts_with(std::env::consts::ARCH)
    }

    /// Why it cannot be built here. `None`: it can.
    pub(super) fn missing(self) -> Result<Option<String>> {
        let mut rustc = Command::new("rustc");
        let out = rustc.args(["--print", "target-libdir", "--target", self.triple()]).current_dir(project::root());
        let folder = String::from_utf8(out.output().context("run rustc")?.stdout)?;
        if !Path::new(folder.trim()).exists() {
            return Ok(Some(format!("the target is not installed (rustup target add {})", self.triple())));
        }
        let linker = format!("{}-gcc", self.triple().replace("-unknown", ""));
        if !self.is_here() && crate::image::on_path(&linker).is_err() {
            return Ok(Some(format!("there is no {linker}")));
        }
        Ok(None)
    }

    pub(super) fn build(self, profile: &str) -> Result<PathBuf> {
        let target = project::target().join("dist-build");
        let mut build = project::cargo(["build", "--locked", "--package", "meltemi"]);
        build.args(["--profile", profile, "--target", self.triple()]).env("CARGO_TARGET_DIR", &target);
        build
            .env("RUSTFLAGS", format!("-C target-feature=+crt-static {}", path_flags()?))
            .env("SOURCE_DATE_EPOCH", "0");
        if !self.is_here() {
            let compiler = format!("{}-gcc", self.triple().replace("-unknown", ""));
            let name = self.triple().to_uppercase().replace('-', "_");
            build.env(format!("CARGO_TARGET_{name}_LINKER"), &compiler);
        }
        progress::step(&format!("build meltemi for {}, static", self.architecture()), &mut build)?;
        let folder = if profile == "dev" { "debug" } else { profile };
        Ok(target.join(self.triple()).join(folder).join("meltemi"))
    }
}

/// The kernel starts it without a loader, which a machine with another C library does not have.
pub(super) fn check_static(program: &Path) -> Result<()> {
    let bytes = fs::read(program).with_context(|| format!("read {}", program.display()))?;
    let interpreter = has_interpreter(&bytes).with_context(|| format!("{} is no program", program.display()))?;
    ensure!(
        !interpreter,
        "{} needs the C library of the machine; it must be linked with crt-static",
        program.display()
    );
    Ok(())
}

/// Whether a 64-bit little-endian ELF file has a segment PT_INTERP. `None`: it is no such file.
fn has_interpreter(bytes: &[u8]) -> Option<bool> {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| {
        let mut out = [0; 8];
        out[..size].copy_from_slice(bytes.get(at..at + size)?);
        Some(u64::from_le_bytes(out))
    };
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) =
        (usize::try_from(number(32, 8)?).ok()?, usize::try_from(number(54, 2)?).ok()?, number(56, 2)?);
    for entry in 0..usize::try_from(count).ok()? {
        if number(table + entry * size, 4)? == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_system_needs_its_loader() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(has_interpreter(&fs::read(&own).unwrap()), Some(true));
        assert!(check_static(&own).unwrap_err().to_string().contains("crt-static"));
        assert_eq!(has_interpreter(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn an_absent_target_is_skipped_with_the_reason() {
        assert_eq!(Target::Amd64.triple(), "x86_64-unknown-linux-gnu");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(Target::Amd64.missing().unwrap(), None);
        }
    }
}
