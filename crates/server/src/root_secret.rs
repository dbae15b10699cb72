//! The Secret `istio-ca-secret`, through which replicas share the root, and its synchronization with the folder of the root of this replica.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use ca::{RootFolder, RootOptions};
use controllers::{CaSecret, CaSecretContent};
use sources::kube::KubeClient;
use tokio::time::sleep;
use tracing::{info, warn};

/// How often the Secret and the folder are compared.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Takes the root of the Secret into the folder, or creates the Secret from the root of the folder or a new one. Returns when that is done:
/// a replica with a root of its own would split the mesh.
pub(crate) async fn share(
    client: &KubeClient,
    namespace: &str,
    folder: &Path,
    root: &RootOptions,
    grace_percent: u32,
) -> Result<()> {
    let (secret, folder_root) = (CaSecret::new(client.clone(), namespace), RootFolder(folder.to_owned()));
    loop {
        let shared = match secret.read().await {
            Ok(Some(shared)) => Ok(shared),
            Ok(None) => {
                folder_root.authority(root, grace_percent, SystemTime::now())?;
                secret.share(&folder_root.material()?).await
            }
            Err(failure) => Err(failure),
        };
        match shared {
            Ok(shared) => {
                return folder_root.adopt(&shared.material).context("write the root of Secret istio-ca-secret");
            }
            Err(failure) => {
                warn!(%failure, "cannot read or create Secret istio-ca-secret; retrying");
            }
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Keeps the Secret and the folder equal: a root that was renewed or rotated here is written to the Secret, and one that another replica wrote
/// is taken into the folder, from which the CA loads it. If both changed, the Secret wins.
pub(crate) async fn follow(client: KubeClient, namespace: String, folder: PathBuf) {
    let (secret, folder_root) = (CaSecret::new(client, &namespace), RootFolder(folder));
    let (mut equal, mut last): (Option<CaSecretContent>, String) = (None, String::new());
    loop {
        let problem = match synchronize(&secret, &folder_root, &mut equal).await {
            Ok(()) => String::new(),
            Err(problem) => format!("{problem:#}"),
        };
        if !problem.is_empty() && problem != last {
            warn!(problem, "cannot synchronize the root with Secret istio-ca-secret: keeping the current root");
        }
        last = problem;
        sleep(CHECK_INTERVAL).await;
    }
}

/// `equal`: the Secret when it was last equal to the folder.
async fn synchronize(secret: &CaSecret, folder_root: &RootFolder, equal: &mut Option<CaSecretContent>) -> Result<()> {
    let found = secret.read().await.context("Secret istio-ca-secret cannot be read")?;
    // Never created again while we run.
    let found = found.context("Secret istio-ca-secret is gone; restore it before a restart")?;
    let own = folder_root.material()?;
    if found.material == own {
        *equal = Some(found);
        return Ok(());
    }
    let changed_here = equal.as_ref().is_some_and(|equal| equal.is_same_version(&found));
    if !changed_here {
        info!("Secret istio-ca-secret changed: loading its root");
        folder_root
            .adopt(&found.material)
            .context("the root of Secret istio-ca-secret cannot be written to its folder")?;
        *equal = Some(found);
        return Ok(());
    }
    match secret.replace(&found, &own).await {
        Ok(written) => {
            info!("root changed: written to Secret istio-ca-secret");
            *equal = Some(written);
            Ok(())
        }
        // The next check reads theirs.
        Err(failure) if CaSecret::is_conflict(&failure) => Ok(()),
        Err(failure) => Err(failure).context("Secret istio-ca-secret cannot be written"),
    }
}
