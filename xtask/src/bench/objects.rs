//! The objects of a mesh as files of JSON documents, and their changes, carried to where a control plane looks.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::api::Api;

pub(super) enum Home {
    /// A folder that is watched. The second is beside it: files are written there and moved in whole.
    Folder {
        live: PathBuf,
        aside: PathBuf,
    },
    Api(Api),
}

pub(super) struct Objects {
    home: Home,
    spare: PathBuf,
    files: BTreeMap<String, Vec<Value>>,
    /// Grows with every edit, so that no edit repeats an earlier one.
    step: usize,
}

impl Objects {
    /// Takes the mesh in `dir` (as loadgen wrote it) to its home.
    pub(super) fn carry(dir: &Path, home: Home) -> Result<Objects> {
        let source = dir.join("objects");
        let mut files = BTreeMap::new();
        for file in crate::project::files(&source)? {
            let text = fs::read_to_string(source.join(&file))?;
            files.insert(file.to_string_lossy().into_owned(), parsed(&text)?);
        }
        let objects = Objects { home, spare: dir.join("spare"), files, step: 0 };
        match &objects.home {
            Home::Folder { .. } => objects.files.keys().try_for_each(|file| objects.save(file))?,
            Home::Api(api) => api.apply_all(&objects.files.values().flatten().collect::<Vec<_>>())?,
        }
        Ok(objects)
    }

    pub(super) fn documents(&self, file: &str) -> Result<&[Value]> {
        Ok(self.files.get(file).with_context(|| format!("the mesh has no file {file}"))?)
    }

    /// Changes the object of this kind in a file; the last, if there are several. The number is another at every call.
    pub(super) fn edit(&mut self, file: &str, kind: &str, change: impl FnOnce(&mut Value, usize)) -> Result<()> {
        let object = find(&mut self.files, file, kind)?;
        self.step += 1;
        change(object, self.step);
        match &self.home {
            Home::Folder { .. } => self.save(file),
            Home::Api(api) => api.apply(object),
        }
    }

    /// Changes an object so many times, one write every `pace`. Returns when the last write began, or ended if that is not known.
    pub(super) fn edit_paced(
        &mut self,
        (file, kind): (&str, &str),
        (times, pace): (usize, Duration),
        change: impl Fn(&mut Value),
    ) -> Result<Duration> {
        let begun = Instant::now();
        if let Home::Api(api) = &self.home {
            let object = find(&mut self.files, file, kind)?;
            let mut next = || {
                change(object);
                object.clone()
            };
            let versions: Vec<Value> = (0..times).map(|_| next()).collect();
            api.apply_paced(&versions, pace)?;
            return Ok(begun.elapsed());
        }
        let mut last = Duration::ZERO;
        for _ in 0..times {
            thread::sleep(pace);
            last = begun.elapsed();
            self.edit(file, kind, |object, _| change(object))?;
        }
        Ok(last)
    }

    /// Gives an object another resourceVersion, and changes nothing else.
    pub(super) fn revise(&mut self, file: &str, kind: &str) -> Result<()> {
        let object = find(&mut self.files, file, kind)?;
        self.step += 1;
        match &self.home {
            Home::Folder { .. } => {
                object["metadata"]["resourceVersion"] = Value::from(self.step.to_string());
                self.save(file)
            }
            Home::Api(api) => api.revise(object, &format!("bench-{}", self.step)),
        }
    }

    /// Adds a file of the spare folder.
    pub(super) fn add(&mut self, file: &str) -> Result<()> {
        let documents = parsed(&fs::read_to_string(self.spare.join(file))?)?;
        self.files.insert(file.to_owned(), documents.clone());
        match &self.home {
            Home::Folder { .. } => self.save(file),
            Home::Api(api) => documents.iter().try_for_each(|object| api.apply(object)),
        }
    }

    /// Adds a file with one object.
    pub(super) fn put(&mut self, file: &str, object: Value) -> Result<()> {
        self.files.insert(file.to_owned(), vec![object]);
        match &self.home {
            Home::Folder { .. } => self.save(file),
            Home::Api(api) => self.files[file].iter().try_for_each(|object| api.apply(object)),
        }
    }

    pub(super) fn remove(&mut self, file: &str) -> Result<()> {
        let documents = self.files.remove(file).with_context(|| format!("{file} was not added"))?;
        match &self.home {
            Home::Folder { live, .. } => Ok(fs::remove_file(live.join(file))?),
            Home::Api(api) => documents.iter().rev().try_for_each(|object| api.delete(object)),
        }
    }

    fn save(&self, file: &str) -> Result<()> {
        let Home::Folder { live, aside } = &self.home else { return Ok(()) };
        let to = live.join(file);
        fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
        let text: Vec<String> = self.files[file].iter().map(Value::to_string).collect();
        fs::create_dir_all(aside)?;
        let written = aside.join("next.yaml");
        fs::write(&written, text.join("\n---\n") + "\n")?;
        fs::rename(&written, &to).with_context(|| format!("move {} into place", to.display()))
    }
}

fn find<'a>(files: &'a mut BTreeMap<String, Vec<Value>>, file: &str, kind: &str) -> Result<&'a mut Value> {
    let documents = files.get_mut(file).with_context(|| format!("the mesh has no file {file}"))?;
    let object = documents.iter_mut().rfind(|object| object["kind"] == kind);
    object.with_context(|| format!("{file} has no {kind}"))
}

fn parsed(text: &str) -> Result<Vec<Value>> {
    text.split("\n---\n").map(|document| serde_json::from_str(document).context("one JSON document")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_reaches_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("objects/a")).unwrap();
        fs::create_dir_all(path("spare")).unwrap();
        fs::write(path("objects/a/b.yaml"), "{\"kind\":\"Service\"}\n---\n{\"kind\":\"Pod\",\"n\":1}\n").unwrap();
        fs::write(path("spare/new.yaml"), "{\"kind\":\"Node\"}\n").unwrap();
        let home = Home::Folder { live: path("live"), aside: path("aside") };
        let mut objects = Objects::carry(dir.path(), home).unwrap();
        objects.edit("a/b.yaml", "Pod", |pod, step| pod["n"] = Value::from(step + 1)).unwrap();
        let text = fs::read_to_string(path("live/a/b.yaml")).unwrap();
        assert_eq!(text, "{\"kind\":\"Service\"}\n---\n{\"kind\":\"Pod\",\"n\":2}\n");
        objects.revise("a/b.yaml", "Service").unwrap();
        let text = fs::read_to_string(path("live/a/b.yaml")).unwrap();
        assert!(text.starts_with("{\"kind\":\"Service\",\"metadata\":{\"resourceVersion\":\"2\"}}\n"), "{text}");
        objects.add("new.yaml").unwrap();
        assert!(path("live/new.yaml").exists());
        objects.remove("new.yaml").unwrap();
        assert!(!path("live/new.yaml").exists());
    }
}
