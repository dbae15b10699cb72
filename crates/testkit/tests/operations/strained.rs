//! `meltemi doctor` on servers in trouble that no object causes: a log that nobody reads, a container that is too small.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testkit::{netns, skip};

use crate::doctor::{check, findings, run};
use crate::figures::Figures;
use crate::served::{ServedMesh, Setup, plan};

/// Who writes to a full pipe waits. Until somebody reads, streams that ended are not cleaned up behind.
#[test]
fn a_log_that_nobody_reads_delays_the_clean_up() {
    run(async {
        let (mut read, write) = std::io::pipe()?;
        let write = File::from(OwnedFd::from(write));
        let log = Some(write.try_clone()?);
        let mesh = ServedMesh::with(&plan(12, 12), &Setup { log, ..Setup::default() })?;
        let swarm = mesh.swarm().await?;
        ensure!(findings(&mesh)?.is_empty(), "nothing is wrong yet");
        let (status, _) = mesh.control("PUT", "/scopej/ads", "{\"output_level\": \"debug\"}")?;
        ensure!(status.contains(" 202 "), "{status}");
        fill(&write)?;
        drop(swarm);
        tokio::time::sleep(Duration::from_millis(1500)).await;
        drop(write);
        std::thread::spawn(move || read.read_to_end(&mut Vec::new()));
        mesh.wait_for("the end of all streams", || {
            Ok(Figures::of(&mesh)?.value("pilot_destroy_time_seconds_count") >= 12.0)
        })?;
        let found = findings(&mesh)?;
        // No proxy is connected any more, which is a finding of its own.
        check(&found, &["zombies", "clean-up"])?;
        ensure!(found[1]["figures"]["p99Seconds"].as_f64() > Some(1.0), "{found:#?}");
        Ok(())
    });
}

/// Linux's, on every architecture that we build for.
const O_NONBLOCK: i32 = 0o4000;

/// To the last byte. The pipe is opened once more for that: the server is to wait, and this does not.
fn fill(write: &File) -> Result<()> {
    let path = format!("/proc/self/fd/{}", write.as_raw_fd());
    let mut write = File::options().write(true).custom_flags(O_NONBLOCK).open(path)?;
    for size in [4096, 1] {
        let full = loop {
            if let Err(error) = write.write(&vec![b' '; size]) {
                break error;
            }
        };
        ensure!(full.kind() == ErrorKind::WouldBlock, "{full}");
    }
    Ok(())
}

/// The limit is a file, as a container shows it; one that holds a little more than the server needs.
#[test]
fn a_container_that_is_too_small() {
    if let Some(why) = netns::missing() {
        return skip(&format!("memory near its limit: {why}"));
    }
    let limited = |limit: f64| async move {
        let script = format!(
            "mount -t tmpfs none /sys/fs/cgroup && echo {limit:.0} > /sys/fs/cgroup/memory.max && exec \"$0\" \"$@\""
        );
        let through = ["unshare", "-m", "sh", "-c", &script].map(str::to_owned);
        let mesh = ServedMesh::with(&plan(12, 12), &Setup { through: &through, ..Setup::default() })?;
        let _swarm = mesh.swarm().await?;
        findings(&mesh)
    };
    run(async {
        let needed = {
            let mesh = ServedMesh::new(&plan(12, 12), &[])?;
            let _swarm = mesh.swarm().await?;
            ensure!(findings(&mesh)?.is_empty(), "nothing is wrong with the machine's memory");
            Figures::of(&mesh)?.value("process_resident_memory_bytes")
        };
        let found = limited(needed * 1.05).await?;
        check(&found, &["memory"])?;
        let what = found[0]["what"].as_str().context("what was found")?;
        ensure!(
            found[0]["figures"]["share"].as_f64() > Some(0.8) && what.contains("the largest part is "),
            "{found:#?}"
        );
        ensure!(found[0]["hint"].to_string().contains("raise the limit"), "{found:#?}");
        check(&limited(needed * 2.0).await?, &[])
    });
}

/// Row F-23: a limit that is less than what is used already. Nobody is ended because of it.
#[test]
fn a_container_that_is_far_too_small_lets_nobody_in() {
    if let Some(why) = netns::missing() {
        return skip(&format!("memory beyond its limit: {why}"));
    }
    run(async {
        let script =
            "mount -t tmpfs none /sys/fs/cgroup && echo 2000000 > /sys/fs/cgroup/memory.max && exec \"$0\" \"$@\"";
        let through = ["unshare", "-m", "sh", "-c", script].map(str::to_owned);
        let mesh = ServedMesh::with(&plan(12, 12), &Setup { through: &through, ..Setup::default() })?;
        mesh.wait_for("the end of its memory", || Ok(mesh.log().contains("rejecting new streams")))?;
        let mut swarm = mesh.idle_swarm()?;
        for line in ["mark rejected none", "connect", "settle 3000 1000 5000"] {
            swarm.execute(line).await?;
        }
        let figures = Figures::of(&mesh)?;
        ensure!(figures.value("grpc_server_handled_total") > 0.0, "nobody was rejected:\n{}", mesh.log());
        ensure!(figures.value("pilot_xds_clients") == 0.0, "somebody was let in");
        Ok(())
    });
}
