//! The images that we make: the product as the Dockerfile makes it, and those of the tests and the demo. What they are made of is on this
//! machine already.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::archive::{Image, Start};
use super::layer::{Layer, on_path};
use crate::reference;

/// The tag of all images of the tests and the demo; pods that name them never ask a registry of the open internet.
const LOCAL: &str = "local";
/// istiod's user, and that of the sidecar.
const MESH_USER: &str = "1337:1337";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const USERS: &str = "root:x:0:0:root:/root:/sbin/nologin\nistio-proxy:x:1337:1337::/tmp:/sbin/nologin\n\
                     nobody:x:65534:65534::/:/sbin/nologin\nnonroot:x:65532:65532::/tmp:/sbin/nologin\n";
const GROUPS: &str = "root:x:0:\nistio-proxy:x:1337:\nnogroup:x:65534:\nnonroot:x:65532:\n";
/// Names under which one program does the work of iptables, by its first argument.
const TABLES: [&str; 2] = ["iptables", "ip6tables"];

/// The control plane, as the Dockerfile makes it: one binary with its libraries, no shell.
pub(crate) fn meltemi(name: &str, program: &Path) -> Result<Image> {
    let mut layer = base();
    layer.program("/usr/local/bin/meltemi", program)?;
    let start = Start {
        user: MESH_USER.to_owned(),
        entrypoint: vec!["/usr/local/bin/meltemi".to_owned()],
        command: vec!["discovery".to_owned()],
        environment: vec!["XDG_STATE_HOME=/var/run/secrets/istio-dns".to_owned()],
        ports: vec![8080, 15010, 15012, 15014, 15017],
    };
    Ok(Image { name: name.to_owned(), start, layer })
}

/// A sidecar as Istio's, with a stock Envoy: Istio's agent, iptables for the init container, a shell to look around.
pub(crate) fn proxy(envoy: &Path) -> Result<Image> {
    let (agent, bootstrap) = reference::agent()?;
    let mut layer = base();
    layer.program("/usr/local/bin/pilot-agent", &agent)?;
    layer.program("/usr/local/bin/envoy", envoy)?;
    layer.file("/var/lib/istio/envoy/envoy_bootstrap_tmpl.json", &bootstrap);
    // Empty folders that the agent writes to, as the sidecar's user.
    layer.folder("/etc/istio/proxy", 0o1777);
    shell(&mut layer)?;
    iptables(&mut layer)?;
    let start = Start { entrypoint: vec!["/usr/local/bin/pilot-agent".to_owned()], ..Start::default() };
    Ok(Image { name: format!("proxyv2:{LOCAL}"), start, layer })
}

/// A sidecar with our own agent.
pub(crate) fn agent_proxy(program: &Path, envoy: &Path) -> Result<Image> {
    let mut layer = base();
    layer.program("/usr/local/bin/meltemi", program)?;
    layer.program("/usr/local/bin/envoy", envoy)?;
    shell(&mut layer)?;
    iptables(&mut layer)?;
    let start = Start { entrypoint: vec!["/usr/local/bin/meltemi".to_owned()], ..Start::default() };
    Ok(Image { name: format!("meltemi-proxy:{LOCAL}"), start, layer })
}

/// A program that answers requests and sends them on: this one.
pub(crate) fn app() -> Result<Image> {
    let mut layer = base();
    layer.program("/usr/local/bin/xtask", &std::env::current_exe().context("find this program")?)?;
    shell(&mut layer)?;
    let entrypoint = vec!["/usr/local/bin/xtask".to_owned(), "app".to_owned()];
    Ok(Image { name: format!("app:{LOCAL}"), start: Start { entrypoint, ..Start::default() }, layer })
}

/// One static program, nothing else.
pub(crate) fn single(name: &str, program: &Path) -> Result<Image> {
    let mut layer = base();
    let path = format!("/usr/local/bin/{name}");
    layer.program(&path, program)?;
    Ok(Image { name: format!("{name}:{LOCAL}"), start: Start { entrypoint: vec![path], ..Start::default() }, layer })
}

fn base() -> Layer {
    let mut layer = Layer::default();
    layer.folder("/tmp", 0o1777);
    layer.folder("/root", 0o700);
    for folder in ["/dev", "/proc", "/sys", "/var/run"] {
        layer.folder(folder, 0o755);
    }
    layer.text("/etc/passwd", USERS);
    layer.text("/etc/group", GROUPS);
    layer.text("/etc/nsswitch.conf", "hosts: files dns\n");
    if Path::new(AUTHORITIES).exists() {
        layer.file(AUTHORITIES, Path::new(AUTHORITIES));
    }
    layer
}

fn shell(layer: &mut Layer) -> Result<()> {
    let busybox = on_path("busybox").context("Debian: apt-get install busybox-static")?;
    layer.program("/bin/busybox", &busybox)?;
    let names = Command::new(&busybox).arg("--list").output().context("run busybox --list")?;
    for name in String::from_utf8_lossy(&names.stdout).split_whitespace().filter(|name| *name != "busybox") {
        layer.link(&format!("/bin/{name}"), "busybox");
    }
    Ok(())
}

/// With its extensions, which it loads by name.
fn iptables(layer: &mut Layer) -> Result<()> {
    for (program, variant) in [("xtables-nft-multi", "nft"), ("xtables-legacy-multi", "legacy")] {
        let found = on_path(program).context("Debian: apt-get install iptables")?;
        layer.program(&format!("/usr/sbin/{program}"), &found)?;
        for table in TABLES {
            for verb in ["", "-save", "-restore"] {
                layer.link(&format!("/usr/sbin/{table}-{variant}{verb}"), program);
                if variant == "nft" {
                    layer.link(&format!("/usr/sbin/{table}{verb}"), program);
                }
            }
        }
    }
    for extension in extensions()? {
        layer.program(&extension.display().to_string(), &fs::canonicalize(&extension)?)?;
    }
    Ok(())
}

fn extensions() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for library in fs::read_dir("/usr/lib")?.flatten().map(|entry| entry.path()).chain([PathBuf::from("/usr/lib")]) {
        let Ok(files) = fs::read_dir(library.join("xtables")) else { continue };
        found
            .extend(files.flatten().map(|file| file.path()).filter(|path| path.extension().is_some_and(|e| e == "so")));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project;

    /// The words of a Dockerfile's instruction, without brackets and quotes.
    fn instruction<'a>(file: &'a str, name: &str) -> Vec<&'a str> {
        let last = file.lines().rev().find_map(|line| line.strip_prefix(name)).expect(name);
        last.split([' ', ',', '[', ']', '"']).filter(|word| !word.is_empty()).collect()
    }

    #[test]
    fn the_image_starts_as_the_one_of_the_dockerfile() {
        let file = fs::read_to_string(project::root().join("Dockerfile")).unwrap();
        let image = meltemi("meltemi:1", Path::new("/bin/sh")).unwrap();
        let ports: Vec<String> = image.start.ports.iter().map(u16::to_string).collect();
        assert_eq!(instruction(&file, "USER "), [image.start.user.as_str()]);
        assert_eq!(instruction(&file, "ENTRYPOINT "), image.start.entrypoint);
        assert_eq!(instruction(&file, "CMD "), image.start.command);
        assert_eq!(instruction(&file, "ENV "), image.start.environment);
        assert_eq!(instruction(&file, "EXPOSE "), ports);
        assert!(file.contains("/release/meltemi /usr/local/bin/meltemi\n"), "{file}");
    }
}
