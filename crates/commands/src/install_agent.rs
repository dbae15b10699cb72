//! `meltemi install-agent`: a copy of this program where a container with another image finds it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use super::CommandOutcome;
use settings::args::InstallAgentArgs;

pub fn run(args: &InstallAgentArgs) -> Result<CommandOutcome> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    copy(&program, &args.file).with_context(|| format!("cannot write {}", args.file.display()))?;
    Ok(CommandOutcome::Done)
}

/// Never half of it under its name: a container that restarts finds the old one or the new one.
fn copy(program: &Path, file: &Path) -> Result<()> {
    let unfinished = file.with_extension("unfinished");
    fs::copy(program, &unfinished)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755))?;
    fs::rename(&unfinished, file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_can_be_run_and_replaces_an_earlier_one() {
        let dir = tempfile::tempdir().unwrap();
        let (program, file) = (dir.path().join("program"), dir.path().join("meltemi"));
        for text in ["#!/bin/sh\nexit 3\n", "#!/bin/sh\nexit 4\n"] {
            fs::write(&program, text).unwrap();
            copy(&program, &file).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
