//! An OCI archive: images as `ctr images import`, `docker load`, `podman load` and `skopeo` read them. One layer each, uncompressed; same
//! contents, same digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::layer::Layer;

const SEARCH_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

#[derive(Debug)]
pub(crate) struct Image {
    /// With its tag; without a registry that of the Docker Hub is meant, as Kubernetes reads it.
    pub(crate) name: String,
    pub(crate) start: Start,
    pub(crate) layer: Layer,
}

/// What the image's container runs, and as whom.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// Empty: root.
    pub(crate) user: String,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    /// `NAME=value`; the search path is added.
    pub(crate) environment: Vec<String>,
    pub(crate) ports: Vec<u16>,
}

impl Start {
    fn config(&self, layer: &str) -> Result<Value> {
        let environment: Vec<&str> =
            [SEARCH_PATH].into_iter().chain(self.environment.iter().map(String::as_str)).collect();
        let ports: BTreeMap<String, Value> = self.ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
        Ok(json!({
            "architecture": architecture()?, "os": "linux", "created": "1970-01-01T00:00:00Z",
            "config": {
                "User": self.user, "Entrypoint": self.entrypoint, "Cmd": self.command, "Env": environment, "ExposedPorts": ports,
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer}")] },
        }))
    }
}

fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("images are made for amd64 and arm64, and this machine is {other}"),
    }
}

/// Writes all of them into one archive; returns the digest of each image's manifest.
pub(crate) fn write(images: &[Image], to: &Path) -> Result<Vec<String>> {
    let folder = to.parent().context("an archive stands in a folder")?;
    fs::create_dir_all(folder)?;
    let half = tempfile::NamedTempFile::new_in(folder).with_context(|| format!("write into {}", folder.display()))?;
    let mut archive = Archive { tar: Builder::new(half.as_file()), blobs: BTreeSet::new() };
    let mut manifests = Vec::new();
    for image in images {
        manifests.push(archive.add(image, folder).with_context(|| format!("make the image {}", image.name))?);
    }
    let digests = manifests.iter().map(|manifest| text(&manifest.descriptor["digest"])).collect();
    archive.finish(&manifests)?;
    half.persist(to).with_context(|| format!("move the archive to {}", to.display()))?;
    Ok(digests)
}

struct Archive<'a> {
    tar: Builder<&'a File>,
    /// Two images may share one.
    blobs: BTreeSet<String>,
}

struct Manifest {
    descriptor: Value,
    /// What `docker load` reads in its place.
    docker: Value,
}

impl Archive<'_> {
    fn add(&mut self, image: &Image, folder: &Path) -> Result<Manifest> {
        let mut layer = Hashed { file: tempfile::tempfile_in(folder)?, hash: Sha256::new() };
        image.layer.write(&mut layer)?;
        let (file, layer) = (layer.file, hex(layer.hash));
        let size = file.metadata()?.len();
        self.file(&layer, file, size)?;
        let config = image.start.config(&layer)?.to_string();
        let config_digest = self.blob(&config)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("config.v1+json", &config_digest, u64::try_from(config.len())?),
            "layers": [descriptor("layer.v1.tar", &layer, size)],
        })
        .to_string();
        let digest = self.blob(&manifest)?;
        let mut described = descriptor("manifest.v1+json", &digest, u64::try_from(manifest.len())?);
        let reference = reference(&image.name);
        let tag = reference.rsplit(':').next().unwrap_or_default();
        described["annotations"] =
            json!({ "io.containerd.image.name": reference, "org.opencontainers.image.ref.name": tag });
        let blob = |digest: &str| format!("blobs/sha256/{digest}");
        let docker = json!({ "Config": blob(&config_digest), "RepoTags": [image.name], "Layers": [blob(&layer)] });
        Ok(Manifest { descriptor: described, docker })
    }

    fn finish(mut self, manifests: &[Manifest]) -> Result<()> {
        let index: Vec<_> = manifests.iter().map(|manifest| &manifest.descriptor).collect();
        let docker: Vec<_> = manifests.iter().map(|manifest| &manifest.docker).collect();
        self.text("oci-layout", &json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
        let kind = "application/vnd.oci.image.index.v1+json";
        self.text("index.json", &json!({ "schemaVersion": 2, "mediaType": kind, "manifests": index }).to_string())?;
        self.text("manifest.json", &json!(docker).to_string())?;
        self.tar.finish().context("end the archive")
    }

    fn blob(&mut self, text: &str) -> Result<String> {
        let digest = hex(Sha256::new_with_prefix(text));
        if self.blobs.insert(digest.clone()) {
            self.text(&format!("blobs/sha256/{digest}"), text)?;
        }
        Ok(digest)
    }

    fn file(&mut self, digest: &str, mut file: File, size: u64) -> Result<()> {
        if self.blobs.insert(digest.to_owned()) {
            io::Seek::rewind(&mut file)?;
            self.tar.append_data(&mut header(size), format!("blobs/sha256/{digest}"), file)?;
        }
        Ok(())
    }

    fn text(&mut self, path: &str, text: &str) -> Result<()> {
        Ok(self.tar.append_data(&mut header(u64::try_from(text.len())?), path, text.as_bytes())?)
    }
}

/// Named in full, as containerd stores it.
fn reference(name: &str) -> String {
    let tagged = match name.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        true => name.to_owned(),
        false => format!("{name}:latest"),
    };
    match tagged.split_once('/') {
        None => format!("docker.io/library/{tagged}"),
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => tagged,
        Some(_) => format!("docker.io/{tagged}"),
    }
}

fn descriptor(kind: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": format!("sha256:{digest}"), "size": size })
}

fn header(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_mtime(0);
    header
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

struct Hashed {
    file: File,
    hash: Sha256,
}

impl Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str) -> Image {
        let mut layer = Layer::default();
        layer.text("/etc/motd", text);
        Image { name: "greeting:1".to_owned(), start: Start { user: "1:1".to_owned(), ..Start::default() }, layer }
    }

    #[test]
    fn the_same_image_has_the_same_digest_twice_and_another_one_another() {
        let dir = tempfile::tempdir().unwrap();
        let digest = |text: &str| write(&[image(text)], &dir.path().join("image.tar")).unwrap();
        let first = digest("hello");
        let bytes = fs::read(dir.path().join("image.tar")).unwrap();
        assert_eq!(digest("hello"), first);
        assert_eq!(fs::read(dir.path().join("image.tar")).unwrap(), bytes);
        assert_ne!(digest("good bye"), first);
    }

    #[test]
    fn every_blob_has_the_digest_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image.tar");
        // Two images with one layer: it is stored once.
        write(&[image("hello"), Image { name: "other:1".to_owned(), ..image("hello") }], &file).unwrap();
        let mut archive = tar::Archive::new(File::open(&file).unwrap());
        let mut names = Vec::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            io::copy(&mut entry, &mut bytes).unwrap();
            if let Some(digest) = path.strip_prefix("blobs/sha256/") {
                assert_eq!(hex(Sha256::new_with_prefix(&bytes)), digest);
            }
            names.push(path);
        }
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len());
        assert!(["oci-layout", "index.json", "manifest.json"].iter().all(|name| names.contains(&(*name).to_owned())));
    }

    #[test]
    fn names_are_completed_as_kubernetes_does() {
        for (short, full) in [
            ("meltemi:0.1.0", "docker.io/library/meltemi:0.1.0"),
            ("meltemi", "docker.io/library/meltemi:latest"),
            ("istio/proxyv2:1", "docker.io/istio/proxyv2:1"),
            ("registry.example/meltemi:1", "registry.example/meltemi:1"),
            ("localhost/meltemi:1", "localhost/meltemi:1"),
        ] {
            assert_eq!(reference(short), full);
        }
    }
}
