//! The mesh config as a single file, read again whenever it changes. Its content is not interpreted here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use config::diagnostic::Diagnostic;
use config::store::{MeshText, Update};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{info, warn};

/// The polling interval. The file is small, and polling finds what events miss: replaced links, network file systems.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A change counts when the text is the same after this long: a save may be several steps, and a part of a text may be valid.
const STABLE_FOR: Duration = Duration::from_millis(100);

/// Sends the mesh config when it changes, until the receiver is dropped. An unreadable file changes nothing, with a diagnostic.
/// `known`: the text that is in use.
pub async fn follow_mesh_config(file: PathBuf, mut known: MeshText, out: mpsc::Sender<Vec<Update>>) {
    let mut trouble = None;
    loop {
        tokio::select! {
            () = out.closed() => return,
            () = sleep(POLL_INTERVAL) => {}
        }
        let mut updates = Vec::new();
        let found = read_stable(&file).await;
        let now = found.as_ref().err().map(|error| format!("cannot read the mesh config: {error}"));
        if now != trouble {
            updates.push(diagnostics(&file, now.as_deref()));
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

fn diagnostics(file: &Path, trouble: Option<&str>) -> Update {
    let source = file.display().to_string();
    let diagnostic =
        trouble.map(|what| Diagnostic::error(format!("{source}: {what}; the previous one stays in force")));
    Update::Diagnostics { source, diagnostics: diagnostic.into_iter().collect() }
}

async fn read_stable(file: &Path) -> std::io::Result<String> {
    let mut last = read(file).await?;
    loop {
        sleep(STABLE_FOR).await;
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
        warn!(%error, "cannot read the mesh config file");
        Err(std::io::Error::other(error))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FollowedFile {
        dir: tempfile::TempDir,
        file: PathBuf,
        updates: mpsc::Receiver<Vec<Update>>,
    }

    fn followed(text: &str) -> FollowedFile {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mesh");
        std::fs::write(&file, text).unwrap();
        let (out, updates) = mpsc::channel(4);
        let known = MeshText { file: "mesh".into(), text: text.into() };
        tokio::spawn(follow_mesh_config(file.clone(), known, out));
        FollowedFile { dir, file, updates }
    }

    impl FollowedFile {
        async fn next(&mut self) -> String {
            let updates = self.updates.recv().await.expect("it goes on");
            let shown = updates.into_iter().map(|update| match update {
                Update::MeshConfig(text) => text.text,
                Update::Diagnostics { diagnostics, .. } => {
                    diagnostics.into_iter().map(|diagnostic| diagnostic.what).collect()
                }
                other => panic!("{other:?}"),
            });
            shown.collect::<Vec<_>>().join("|")
        }
    }

    #[tokio::test]
    async fn a_changed_text_is_sent_once() {
        let mut followed = followed("a: 1\n");
        std::fs::write(&followed.file, "a: 2\n").unwrap();
        assert_eq!(followed.next().await, "a: 2\n");
        std::fs::write(&followed.file, "a: 2\n").unwrap();
        let target = followed.dir.path().join("other");
        std::fs::write(&target, "a: 3\n").unwrap();
        std::fs::rename(&target, &followed.file).unwrap();
        assert_eq!(followed.next().await, "a: 3\n");
    }

    #[tokio::test]
    async fn a_file_that_is_gone_is_reported_and_changes_nothing() {
        let mut followed = followed("a: 1\n");
        std::fs::remove_file(&followed.file).unwrap();
        let diagnostic = followed.next().await;
        assert!(
            diagnostic.contains("cannot read the mesh config") && diagnostic.ends_with("stays in force"),
            "{diagnostic}"
        );
        std::fs::write(&followed.file, "a: 1\n").unwrap();
        assert_eq!(followed.next().await, "", "the note is taken back");
    }
}
