//! What runs on a node, and what it costs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::holder::Holder;
use super::lifetime;
use super::node::Node;

/// Ticks of the processor clock in a second, as Linux has them for programs.
const TICKS: u64 = 100;

pub(super) fn print(node: Node) -> Result<()> {
    let kubeconfig = node.kubeconfig()?;
    lifetime::kubectl(&kubeconfig)?.args(["get", "nodes,pods", "-A", "-o", "wide"]).status().context("run kubectl")?;
    println!("\n{:<24} {:>6} {:>8}", "part", "MB", "CPU s");
    // The node's own view: numbers of processes are those of its namespace.
    let root = Path::new("/proc").join(Holder::running(node)?.init.to_string()).join("root");
    let mut files: Vec<_> = fs::read_dir(root.join("run"))?.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "pid")) {
        let name = file.file_stem().unwrap_or_default().display().to_string();
        let usage = usage(&root.join("proc").join(fs::read_to_string(file)?.trim()));
        match usage {
            Ok((megabytes, seconds)) => println!("{name:<24} {megabytes:>6} {seconds:>8}"),
            Err(_) => println!("{name:<24} ended"),
        }
    }
    println!("\nlogs: {}", node.folder()?.join("logs").display());
    Ok(())
}

fn usage(process: &Path) -> Result<(u64, u64)> {
    let status = fs::read_to_string(process.join("status"))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = memory.trim().trim_end_matches(" kB").parse()?;
    let stat = fs::read_to_string(process.join("stat"))?;
    // Fields are counted behind the name, which may have spaces: user and system time are the 12th and 13th from there.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok((kilobytes / 1024, (ticks(11) + ticks(12)) / TICKS))
}
