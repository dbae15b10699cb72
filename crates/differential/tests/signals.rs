//! A run that is ended by a signal leaves nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::Signal;
use testkit::environment;
use testkit::process::Process;
use testkit::wait::eventually_blocking;

/// Programs that this process started, with their names.
fn children(parent: u32) -> Result<BTreeSet<(u32, String)>> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let child = |id: u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(") ")?;
        let is_child = tail.split(' ').nth(1)?.parse() == Ok(parent);
        is_child.then(|| (id, head.split_once('(').map_or_else(String::new, |(_, name)| name.to_owned())))
    };
    Ok(processes.filter_map(child).collect())
}

#[test]
fn a_signal_ends_istiod_the_api_server_and_its_store_too() -> Result<()> {
    if !environment::reference().is_some_and(|folder| folder.join("bin/pilot-discovery").exists()) {
        eprintln!("skipped: the real istiod is not there");
        return Ok(());
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_differential"));
        command.args(["--seeds", "0..1000"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut run = Process::spawn(&mut command)?;
        let mut started = BTreeSet::new();
        eventually_blocking("istiod and its API server", || {
            started = children(run.id())?;
            Ok(started.len() == 3 || run.has_ended()?)
        })?;
        assert_eq!(started.len(), 3, "{started:?}");
        run.signal(signal)?;
        eventually_blocking("the end of the run", || run.has_ended())?;
        assert_eq!(run.exit_status()?.and_then(|status| status.code()), Some(2), "it says that it was stopped");
        std::thread::sleep(Duration::from_millis(100));
        let left: Vec<_> = started.iter().filter(|(id, _)| fs::exists(format!("/proc/{id}")).unwrap()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    Ok(())
}
