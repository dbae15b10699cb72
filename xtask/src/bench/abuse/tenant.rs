//! Attacks of tenants: objects in one folder and namespace, written again at every beat. What they cost others is measured elsewhere.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result};
use serde_json::{Value, json};

const NAMESPACE: &str = "attacker";
/// Objects with a silent key server each.
const KEY_SERVERS: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TenantAttack {
    KeyServers,
    LargeRoutes,
    ManyHosts,
    LargeAnnotations,
    DeepYaml,
    Aliases,
    Links,
}

impl TenantAttack {
    pub(super) const ALL: [TenantAttack; 7] = [
        TenantAttack::KeyServers,
        TenantAttack::LargeRoutes,
        TenantAttack::ManyHosts,
        TenantAttack::LargeAnnotations,
        TenantAttack::DeepYaml,
        TenantAttack::Aliases,
        TenantAttack::Links,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            TenantAttack::KeyServers => "key-servers",
            TenantAttack::LargeRoutes => "large-routes",
            TenantAttack::ManyHosts => "many-hosts",
            TenantAttack::LargeAnnotations => "large-annotations",
            TenantAttack::DeepYaml => "deep-yaml",
            TenantAttack::Aliases => "aliases",
            TenantAttack::Links => "links",
        }
    }

    pub(super) fn what(self) -> &'static str {
        match self {
            TenantAttack::KeyServers => "50 RequestAuthentications whose key servers never answer",
            TenantAttack::LargeRoutes => "A VirtualService of 500 routes, each with a regular expression of 1 kB",
            TenantAttack::ManyHosts => "A ServiceEntry with 200 hosts and 50 ports",
            TenantAttack::LargeAnnotations => "A Service with 900 kB of annotations",
            TenantAttack::DeepYaml => "A file with 50,000 brackets",
            TenantAttack::Aliases => "A file whose aliases stand for a billion values",
            TenantAttack::Links => "Links to each other, to the folder above, to / and to /proc",
        }
    }
}

/// The folder of the attacker, and what it holds.
pub(super) struct Tenants {
    folder: PathBuf,
    aside: PathBuf,
    running: Vec<TenantAttack>,
    key_server: u16,
}

impl Tenants {
    pub(super) fn new(folder: PathBuf, aside: PathBuf) -> Result<Tenants> {
        Ok(Tenants { folder, aside, running: Vec::new(), key_server: silent_server()? })
    }

    pub(super) fn begin(&mut self, attack: TenantAttack) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        if attack == TenantAttack::Links {
            let link = |to: &str, name: &str| symlink(to, self.folder.join(name)).context("make a link");
            link("loop-b", "loop-a")?;
            link("loop-a", "loop-b")?;
            link("..", "above")?;
            link("/", "root")?;
            link("/proc", "proc")?;
        }
        self.running.push(attack);
        Ok(())
    }

    /// Writes the objects of every attack again, each time others.
    pub(super) fn step(&self, beat: u32) -> Result<()> {
        for attack in &self.running {
            match attack {
                TenantAttack::KeyServers => self.write(*attack, &documents(&key_servers(self.key_server, beat)))?,
                TenantAttack::LargeRoutes => self.write(*attack, &documents(&[large_routes(beat)]))?,
                TenantAttack::ManyHosts => self.write(*attack, &documents(&[many_hosts(beat)]))?,
                TenantAttack::LargeAnnotations => self.write(*attack, &documents(&[large_annotations(beat)]))?,
                TenantAttack::DeepYaml => self.write(*attack, &format!("a{beat}: {}\n", "[".repeat(50_000)))?,
                TenantAttack::Aliases => self.write(*attack, &aliases(beat))?,
                TenantAttack::Links => {}
            }
        }
        Ok(())
    }

    pub(super) fn end(&mut self) -> Result<()> {
        self.running.clear();
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).context("remove the attacker's objects")
            }
            _ => Ok(()),
        }
    }

    fn write(&self, attack: TenantAttack, text: &str) -> Result<()> {
        let written = self.aside.join("attack.yaml");
        fs::write(&written, text)?;
        place(&written, &self.folder.join(format!("{}.yaml", attack.name())))
    }
}

fn place(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("move {} into place", to.display()))
}

fn documents(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{object}\n")).collect()
}

fn meta(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE })
}

fn key_servers(port: u16, beat: u32) -> Vec<Value> {
    let one = |n: usize| {
        let rule = json!({ "issuer": format!("https://{n}.example"), "jwksUri": format!("http://127.0.0.1:{port}/{beat}/{n}") });
        json!({ "apiVersion": "security.istio.io/v1", "kind": "RequestAuthentication", "metadata": meta(&format!("keys-{n}")), "spec": { "jwtRules": [rule] } })
    };
    (0..KEY_SERVERS).map(one).collect()
}

fn large_routes(beat: u32) -> Value {
    let route = |n: usize| {
        let regex = format!("/{n}/{beat}/({})+", "a|b?".repeat(200));
        json!({ "match": [{ "uri": { "regex": regex } }], "route": [{ "destination": { "host": "a.example" } }] })
    };
    let routes: Vec<Value> = (0..500).map(route).collect();
    json!({ "apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": meta("large"), "spec": { "hosts": ["a.example"], "http": routes } })
}

fn many_hosts(beat: u32) -> Value {
    let hosts: Vec<String> = (0..200).map(|n| format!("h{n}.{beat}.example")).collect();
    let ports: Vec<Value> =
        (0..50).map(|n| json!({ "number": 9000 + n, "name": format!("http-{n}"), "protocol": "HTTP" })).collect();
    let spec = json!({ "hosts": hosts, "ports": ports, "location": "MESH_EXTERNAL", "resolution": "DNS" });
    json!({ "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": meta("many"), "spec": spec })
}

fn large_annotations(beat: u32) -> Value {
    let annotations = json!({ "large": "x".repeat(900_000), "beat": beat.to_string() });
    let metadata = json!({ "name": "annotated", "namespace": NAMESPACE, "annotations": annotations });
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": { "clusterIP": "10.97.0.1", "ports": [{ "name": "http", "port": 80 }] } })
}

/// Nine lists of nine of the list before.
fn aliases(beat: u32) -> String {
    let first = format!("l0: &l0 [x{beat}, x, x, x, x, x, x, x, x]\n");
    let next = |n: usize| format!("l{n}: &l{n} [{}]\n", vec![format!("*l{}", n - 1); 9].join(", "));
    first + &(1..10).map(next).collect::<String>()
}

/// Takes connections and never answers. Its thread ends with the program.
fn silent_server() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attack_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let mut tenants = Tenants::new(dir.path().join("attacker"), dir.path().to_owned()).unwrap();
        for attack in TenantAttack::ALL {
            tenants.begin(attack).unwrap();
        }
        tenants.step(1).unwrap();
        assert_eq!(fs::read_dir(dir.path().join("attacker")).unwrap().count(), 6 + 5);
        tenants.end().unwrap();
        assert!(!dir.path().join("attacker").exists());
        assert!(tenants.end().is_ok(), "nothing was begun");
    }
}
