//! The image registry of a node, for pods that must pull: it has what was given to containerd and nothing else. Read-only, loopback only.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::Value;

use shop::http;

const ADDRESS: &str = "127.0.0.1:5000";
const BLOBS: &str = "/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256";

pub(super) fn run() -> Result<()> {
    let listener = TcpListener::bind(ADDRESS).with_context(|| format!("listen on {ADDRESS}"))?;
    for stream in listener.incoming().flatten() {
        thread::spawn(move || {
            if let Err(error) = serve(&stream) {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

fn serve(mut stream: &TcpStream) -> Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(head) = http::head(&mut reader)? {
        let mut words = head.split_whitespace();
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let Some((file, answer)) = Asked::parse(path).and_then(|asked| asked.answer()) else {
            // The bare path asks whether this is a registry at all.
            let status = if path.starts_with("/v2/?") || path == "/v2/" { "200 OK" } else { "404 Not Found" };
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        };
        write!(stream, "HTTP/1.1 200 OK\r\n{answer}\r\n")?;
        if method == "GET" {
            io::copy(&mut File::open(file)?, &mut stream)?;
        }
    }
    Ok(())
}

/// A path of the registry protocol.
#[derive(Debug, PartialEq, Eq)]
struct Asked<'a> {
    /// The registry that the pod named.
    host: &'a str,
    name: &'a str,
    is_manifest: bool,
    /// A tag or a digest.
    version: &'a str,
}

impl Asked<'_> {
    fn parse(path: &str) -> Option<Asked<'_>> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let host = query.split('&').find_map(|pair| pair.strip_prefix("ns=")).unwrap_or("docker.io");
        let (path, version) = path.strip_prefix("/v2/")?.rsplit_once('/')?;
        let (name, kind) = path.rsplit_once('/')?;
        let is_manifest = match kind {
            "manifests" => true,
            "blobs" => false,
            _ => return None,
        };
        Some(Asked { host, name, is_manifest, version })
    }

    /// The file and the headers that describe it; `None`: it is not here.
    fn answer(&self) -> Option<(PathBuf, String)> {
        let digest = match self.version.strip_prefix("sha256:") {
            Some(digest) => digest.to_owned(),
            None => digest_of(&format!("{}/{}:{}", self.host, self.name, self.version))?,
        };
        let file = Path::new(BLOBS).join(digest.chars().filter(char::is_ascii_hexdigit).collect::<String>());
        let length = fs::metadata(&file).ok()?.len();
        let kind = match self.is_manifest {
            true => media_type(&fs::read(&file).ok()?),
            false => "application/octet-stream".to_owned(),
        };
        let described =
            format!("Content-Type: {kind}\r\nContent-Length: {length}\r\nDocker-Content-Digest: sha256:{digest}\r\n");
        Some((file, described))
    }
}

fn media_type(manifest: &[u8]) -> String {
    let described: Value = serde_json::from_slice(manifest).unwrap_or_default();
    described["mediaType"].as_str().unwrap_or("application/vnd.oci.image.manifest.v1+json").to_owned()
}

/// As containerd has it.
fn digest_of(image: &str) -> Option<String> {
    let list = Command::new("ctr").args(["-n", "k8s.io", "images", "ls", &format!("name=={image}")]).output().ok()?;
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    text.split_whitespace().find_map(|word| word.strip_prefix("sha256:")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_protocol_are_read() {
        let tag = Asked { host: "docker.io", name: "library/proxyv2", is_manifest: true, version: "local" };
        assert_eq!(Asked::parse("/v2/library/proxyv2/manifests/local?ns=docker.io"), Some(tag));
        let blob = Asked { host: "registry.example", name: "a/b", is_manifest: false, version: "sha256:12" };
        assert_eq!(Asked::parse("/v2/a/b/blobs/sha256:12?ns=registry.example"), Some(blob));
        assert_eq!(Asked::parse("/v2/"), None);
        assert_eq!(Asked::parse("/v2/a/tags/list"), None);
    }
}
