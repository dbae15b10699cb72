//! `cargo xtask profile`: counts what runs how often while the program serves meshes. Release builds are laid out by the counts, which are a file of
//! the project; it is made anew when much has changed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Tools;
use super::scenario::Scenario;
use super::size::Size;
use super::system::Source;
use super::trial::{Plan, Trial};
use crate::reference::Reference;
use crate::{progress, project};

/// What control planes do all day. What is not among it is laid out as code that hardly ever runs.
const SCENARIOS: [Scenario; 10] = [
    Scenario::Connect,
    Scenario::Endpoint,
    Scenario::EndpointOfOne,
    Scenario::VirtualService,
    Scenario::VirtualServiceOfOne,
    Scenario::DestinationRule,
    Scenario::NewService,
    Scenario::NoopAnnotation,
    Scenario::Rollout,
    Scenario::Reconnect,
];

pub(crate) fn run() -> Result<()> {
    let reference = Reference::find()?;
    let merger = merger()?;
    let work = tempfile::tempdir().context("make a work folder")?;
    // Always the same, since it is a flag of the build: another one would build everything anew.
    let counts = project::target().join("counting/counts");
    let tools = Tools::new(counting(&counts)?, Some(reference), false)?;
    // The scripts and macros of the build have counted as well.
    fs::remove_dir_all(&counts).ok();
    let mut raw = File::create(work.path().join("raw.jsonl"))?;
    for (source, size) in meshes() {
        Trial::run(&tools, &Plan { size, scenarios: &SCENARIOS, rounds: 1, istiod: &[], source }, &mut raw)?;
    }
    ensure!(counts.is_dir(), "the program has left no counts: it was not ended in order");
    let mut merge = Command::new(merger);
    merge.args(["merge", "--sparse", "--output"]).arg(project::profile()).arg(&counts);
    progress::step("add up the counts", &mut merge)?;
    eprintln!("{}", project::profile().display());
    Ok(())
}

/// From an API server, from a folder, and over TLS; the first as large as the one that most figures are of.
fn meshes() -> [(Source, Size); 3] {
    let large = Size {
        proxies: 1000,
        services: 1000,
        endpoints: 3,
        namespaces: 50,
        scoped: true,
        virtual_services: 30,
        destination_rules: 30,
        gateways: 0,
        routers: 10,
        stalled: 0,
        silent: 0,
        tls: false,
    };
    let small = Size { proxies: 300, ..large.clone() };
    [
        (Source::ApiServer, large),
        (Source::Folder, Size { scoped: false, ..small.clone() }),
        (Source::Folder, Size { tls: true, ..small }),
    ]
}

/// The program with counters, built as it is shipped but for these.
fn counting(counts: &Path) -> Result<PathBuf> {
    let target = project::target().join("counting");
    let mut build = project::release(&format!("-Cprofile-generate={}", counts.display()));
    progress::step("build meltemi with counters", build.arg("--target-dir").arg(&target))?;
    Ok(target.join("release/meltemi"))
}

/// llvm-profdata of the toolchain: counts of one compiler are read by its own tools only.
fn merger() -> Result<PathBuf> {
    let asked = Command::new("rustc").args(["--print", "target-libdir"]).current_dir(project::root()).output();
    let libraries = asked.context("ask rustc where its libraries are")?.stdout;
    let libraries = PathBuf::from(String::from_utf8(libraries)?.trim());
    let merger = libraries.with_file_name("bin").join("llvm-profdata");
    if !merger.exists() {
        let mut fetch = Command::new("rustup");
        progress::step(
            "fetch llvm-tools",
            fetch.args(["component", "add", "llvm-tools"]).current_dir(project::root()),
        )?;
    }
    Ok(merger)
}
