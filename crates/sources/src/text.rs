//! One file that is a text of its own, the mesh config, read again whenever it changes. What it says is not known here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::note::Note;
use config::store::{MeshText, Update};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{info, warn};

/// How often the file is looked at. It is small, and a look finds what events miss: links that are swapped, network file systems.
const LOOK: Duration = Duration::from_secs(1);

/// A text counts when it is the same after this long: a save may be several steps, and half a text may be a valid one.
const SETTLED: Duration = Duration::from_millis(100);

/// Sends the mesh config when it changes, until the receiver is dropped. A file that cannot be read changes nothing; a note says so.
/// `known`: the text that is in use.
pub async fn follow_mesh_config(file: PathBuf, mut known: MeshText, out: mpsc::Sender<Vec<Update>>) {
    let mut trouble = None;
    loop {
        tokio::select! {
            () = out.closed() => return,
            () = sleep(LOOK) => {}
        }
        let mut updates = Vec::new();
        let found = settled(&file).await;
        let now = found.as_ref().err().map(|error| format!("cannot read the mesh config: {error}"));
        if now != trouble {
            updates.push(notes(&file, now.as_deref()));
            trouble = now;
        }
        if let Ok(text) = found
            && text != known.text
        {
            info!(file = known.file, "mesh config changed");
            known.text = text;
            updates.push(Update::MeshConfig(known.clone()));
        }
        if !updates.is_empty() && out.send(updates).await.is_err() {
            return;
        }
    }
}

fn notes(file: &Path, trouble: Option<&str>) -> Update {
    let source = file.display().to_string();
    let note = trouble.map(|what| Note::error(format!("{source}: {what}; what it said before stays in force")));
    Update::Notes { source, notes: note.into_iter().collect() }
}

async fn settled(file: &Path) -> std::io::Result<String> {
    let mut last = read(file).await?;
    loop {
        sleep(SETTLED).await;
        let text = read(file).await?;
        if text == last {
            return Ok(text);
        }
        last = text;
    }
}

async fn read(file: &Path) -> std::io::Result<String> {
    let file = file.to_owned();
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(file)).await;
    text.unwrap_or_else(|error| {
        warn!(%error, "the look at the mesh config failed");
        Err(std::io::Error::other(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World {
        dir: tempfile::TempDir,
        file: PathBuf,
        updates: mpsc::Receiver<Vec<Update>>,
    }

    fn world(text: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mesh");
        std::fs::write(&file, text).unwrap();
        let (out, updates) = mpsc::channel(4);
        let known = MeshText { file: "mesh".into(), text: text.into() };
        tokio::spawn(follow_mesh_config(file.clone(), known, out));
        World { dir, file, updates }
    }

    impl World {
        async fn next(&mut self) -> String {
            let updates = self.updates.recv().await.expect("it goes on");
            let shown = updates.into_iter().map(|update| match update {
                Update::MeshConfig(text) => text.text,
                Update::Notes { notes, .. } => notes.into_iter().map(|note| note.what).collect(),
                other => panic!("{other:?}"),
            });
            shown.collect::<Vec<_>>().join("|")
        }
    }

    #[tokio::test]
    async fn a_changed_text_is_sent_once() {
        let mut world = world("a: 1\n");
        std::fs::write(&world.file, "a: 2\n").unwrap();
        assert_eq!(world.next().await, "a: 2\n");
        std::fs::write(&world.file, "a: 2\n").unwrap();
        let target = world.dir.path().join("other");
        std::fs::write(&target, "a: 3\n").unwrap();
        std::fs::rename(&target, &world.file).unwrap();
        assert_eq!(world.next().await, "a: 3\n");
    }

    #[tokio::test]
    async fn a_file_that_is_gone_is_told_and_changes_nothing() {
        let mut world = world("a: 1\n");
        std::fs::remove_file(&world.file).unwrap();
        let note = world.next().await;
        assert!(note.contains("cannot read the mesh config") && note.ends_with("stays in force"), "{note}");
        std::fs::write(&world.file, "a: 1\n").unwrap();
        assert_eq!(world.next().await, "", "the note is taken back");
    }
}
