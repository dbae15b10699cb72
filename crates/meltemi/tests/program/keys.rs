//! Private keys on disk and in memory: an incomplete CA ends the start, and core dumps are disabled.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use testkit::wait::eventually_blocking;

use crate::run::{PROGRAM, SHOP, folder, path};
use crate::serve::Server;

const NOBODY: u32 = 65_534;

fn flags(state: &TempDir) -> [&str; 3] {
    ["--secureGRPCAddr=127.0.0.1:0", "--stateDir", path(state)]
}

/// The standard error of a start that must fail.
fn failed_start(objects: &TempDir, state: &TempDir) -> String {
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--config", path(objects), "--grpcAddr=", "--httpAddr=", "--monitoringAddr=127.0.0.1:0"])
        .args(flags(state))
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let ended = eventually_blocking("the program to end", || Ok(child.try_wait()?.is_some()));
    let _ = child.kill();
    ended.expect("it rejects the folder and ends");
    let out = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(2), "{stderr}");
    stderr
}

#[test]
fn an_incomplete_ca_ends_the_start_and_changes_nothing() {
    let (objects, state) = (folder(&[("shop.yaml", SHOP)]), folder(&[]));
    drop(Server::start_with(&objects, &flags(&state), &[]));
    let ca = state.path().join("ca");
    let read = |name: &str| fs::read(ca.join(name)).expect("a file");
    for (lost, left) in [("ca-cert.pem", "ca-key.pem"), ("ca-key.pem", "ca-cert.pem")] {
        let (backup, before) = (read(lost), read(left));
        fs::remove_file(ca.join(lost)).expect("a file");
        let stderr = failed_start(&objects, &state);
        assert!(stderr.contains(lost) && stderr.contains(left) && stderr.contains("restore"), "{stderr}");
        assert_eq!(read(left), before);
        assert!(!ca.join(lost).exists());
        fs::write(ca.join(lost), backup).expect("room");
    }
    // Half of a write that was interrupted.
    fs::copy(ca.join("ca-key.pem"), ca.join(".tmpA1b2C3")).expect("room");
    fs::write(state.path().join(".tmpD4e5F6"), "half").expect("room");
    drop(Server::start_with(&objects, &flags(&state), &[]));
    assert!(!ca.join(".tmpA1b2C3").exists() && !state.path().join(".tmpD4e5F6").exists());
}

/// As a container runs it, without root: the kernel then gives /proc/PID to root, and we must still find ourselves in it.
#[test]
fn core_dumps_are_disabled_and_process_metrics_work() {
    let (objects, state, place) = (folder(&[("shop.yaml", SHOP)]), folder(&[]), folder(&[]));
    let program = place.path().join("meltemi");
    let mut command = Command::new(&program);
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        fs::copy(PROGRAM, &program).expect("room");
        for folder in [&objects, &place] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("our own");
        }
        std::os::unix::fs::chown(state.path(), Some(NOBODY), Some(NOBODY)).expect("root may");
        command.uid(NOBODY).gid(NOBODY);
    } else {
        command = Command::new(PROGRAM);
    }
    let server = Server::run(command, &objects, &flags(&state), &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("it runs");
    let core: Vec<_> = limits.lines().filter(|line| line.starts_with("Max core file size")).collect();
    assert_eq!(core[0].split_whitespace().skip(4).collect::<Vec<_>>(), ["0", "0", "bytes"], "{core:?}");
    let owner = fs::metadata(format!("/proc/{}/stat", server.id())).expect("it runs").uid();
    assert_eq!(owner, 0, "the memory of a process that may not be dumped is root's");
    for name in ["process_open_fds", "process_resident_memory_bytes", "process_max_fds", "process_threads"] {
        let value: f64 = server.metric(&format!("{name} ")).and_then(|text| text.parse().ok()).unwrap_or_default();
        assert!(value > 0.0, "{name} is {value}");
    }
}
