//! Kubernetes' programs and CoreDNS, built from their Go modules into the cache folder. What the distribution has is not built.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::reference::{self, KUBERNETES};
use crate::{progress, project};

const COREDNS: &str = "v1.12.4";
/// Built together: they share most of their packages.
const KUBERNETES_PROGRAMS: [&str; 6] =
    ["kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"];
/// In CoreDNS' own order, which decides who answers first.
const PLUGINS: [&str; 6] = ["health", "ready", "errors", "cache", "kubernetes", "template"];

/// A program of the node. The folder carries the version, so that another version is built beside it.
pub(crate) fn path(name: &str) -> Result<PathBuf> {
    Ok(folder()?.join(name))
}

pub(super) fn etcd() -> Result<PathBuf> {
    Ok(project::cache()?.join("reference/bin/etcd"))
}

fn folder() -> Result<PathBuf> {
    Ok(project::cache()?.join(format!("cluster/programs-{KUBERNETES}")))
}

/// Names of those that are not built yet.
pub(crate) fn missing() -> Result<Vec<&'static str>> {
    let folder = folder()?;
    let names = KUBERNETES_PROGRAMS.into_iter().chain(["coredns", "pause"]);
    let built = names.filter(|name| !folder.join(name).exists());
    Ok(built.chain(Some("etcd").filter(|_| !etcd().is_ok_and(|path| path.exists()))).collect())
}

/// Says nothing and takes no time when all are there.
pub(super) fn build() -> Result<()> {
    if missing()?.is_empty() {
        return Ok(());
    }
    let folder = folder()?;
    fs::create_dir_all(&folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let lock = File::create(folder.join("setup.lock"))?;
    if lock.try_lock().is_err() {
        eprintln!("cluster: another setup is running; waiting for it");
        lock.lock().context("wait for another setup")?;
    }
    eprintln!(
        "cluster: Kubernetes {KUBERNETES}, built with Go into {} (five minutes of processor time; more where nothing of it was built before)",
        folder.display()
    );
    reference::api_server()?;
    for name in missing()? {
        // One build may have made the next ones, too.
        match name {
            "coredns" => coredns(&folder)?,
            "pause" => pause(&folder)?,
            _ if folder.join(name).exists() => {}
            _ => kubernetes(&folder)?,
        }
    }
    Ok(())
}

fn kubernetes(folder: &Path) -> Result<()> {
    let mains = KUBERNETES_PROGRAMS.map(|name| format!("k8s.io/kubernetes/cmd/{name}"));
    let dir = reference::kubernetes_module("kubernetes", &mains)?;
    let built = dir.join("built/");
    fs::create_dir_all(&built)?;
    let mut build = reference::go(&dir);
    build.args(["build", reference::PLAIN_COMPILER, &version(), "-o"]).arg(built.join("")).args(&mains);
    progress::step("go build kubernetes", &mut build)?;
    for name in KUBERNETES_PROGRAMS {
        finish(&built.join(name), &folder.join(name))?;
    }
    Ok(())
}

/// Charts that ask for a version of Kubernetes refuse one that does not say its own.
fn version() -> String {
    let minor = KUBERNETES.split('.').nth(1).unwrap_or_default();
    let fields = [
        ("gitVersion", format!("v{KUBERNETES}")),
        ("gitMajor", "1".to_owned()),
        ("gitMinor", minor.to_owned()),
        ("gitTreeState", "clean".to_owned()),
    ];
    let set = fields.map(|(field, value)| format!("-X k8s.io/component-base/version.{field}={value}"));
    format!("-ldflags=-s -w {}", set.join(" "))
}

/// With the plugins of our own configuration only: all of them would take minutes.
fn coredns(folder: &Path) -> Result<()> {
    // Required, not fetched by `go get`: that would download what all plugins need, hundreds of megabytes of clouds' libraries. And with the
    // libraries of the Kubernetes that is built, which then need not be compiled again.
    let libraries = ["api", "apimachinery", "client-go"];
    let published = KUBERNETES.replacen("1.", "v0.", 1);
    let same = libraries.map(|name| format!("require k8s.io/{name} {published}\n")).concat();
    let dir = reference::module_with("coredns", &format!("require github.com/coredns/coredns {COREDNS}\n{same}"))?;
    let imports: String = PLUGINS.map(|name| format!("\t_ \"github.com/coredns/coredns/plugin/{name}\"\n")).concat();
    let order = PLUGINS.map(|name| format!("{name:?}")).join(", ");
    let main = format!(
        "package main\n\nimport (\n\t\"github.com/coredns/coredns/core/dnsserver\"\n\t\"github.com/coredns/coredns/coremain\"\n\n\
         {imports})\n\nfunc main() {{\n\tdnsserver.Directives = []string{{{order}}}\n\tcoremain.Run()\n}}\n"
    );
    fs::write(dir.join("main.go"), main)?;
    progress::step("go build coredns", reference::go(&dir).args(reference::PLAIN).arg("."))?;
    finish(&dir.join("built"), &folder.join("coredns"))
}

/// What holds the namespaces of a pod; Kubernetes has it in C.
fn pause(folder: &Path) -> Result<()> {
    let dir = reference::empty_module("pause")?;
    let described = reference::kubernetes_source(&dir)?;
    let source = described["Dir"].as_str().context("go mod download named no folder")?;
    let source = Path::new(source).join("build/pause/linux/pause.c");
    let built = dir.join("built");
    let mut compile = Command::new("cc");
    compile.args(["-Os", "-static", "-s", &format!("-DVERSION=v{KUBERNETES}"), "-o"]).arg(&built).arg(source);
    progress::step("cc pause", &mut compile)?;
    finish(&built, &folder.join("pause"))
}

/// Moved last, so that a program that is there is whole.
fn finish(built: &Path, to: &Path) -> Result<()> {
    let half = to.with_extension("half");
    fs::copy(built, &half).with_context(|| format!("copy {}", built.display()))?;
    fs::rename(&half, to).with_context(|| format!("move {} into place", to.display()))
}
