//! The rights that this server needs in a cluster, and the log line that names those which its role lacks. docs/kubernetes.md has the table.

use config::kind::Kind;
use controllers::{ROOT_CERT, Right, missing_rights};
use sources::kube::{ApiResource, KubeClient, plural};
use tracing::{debug, warn};

use crate::leader_tasks::ACKNOWLEDGEMENTS_LEASE;

/// What the server does besides reading objects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnabledWrites {
    pub(crate) leader_election: bool,
    pub(crate) status: bool,
    /// The secure port is on: it has callers to authenticate and roots to publish.
    pub(crate) identity: bool,
}

/// Logs all missing rights at once.
pub(crate) async fn report_missing(
    client: KubeClient,
    namespace: String,
    reads: Vec<ApiResource>,
    writes: EnabledWrites,
    leader_lease: String,
) {
    match missing_rights(&client, &namespace, &needed(&reads, writes, &leader_lease)).await {
        Ok(missing) if missing.is_empty() => debug!("the role has every right that is needed"),
        Ok(missing) => {
            let rights = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            warn!(count = missing.len(), rights, "the role lacks rights: add these rules");
        }
        Err(failure) => debug!(%failure, "cannot ask for the rights of the role"),
    }
}

/// `leader_lease`: its name.
fn needed(reads: &[ApiResource], writes: EnabledWrites, leader_lease: &str) -> Vec<Right> {
    let read = |resource: &ApiResource| Right {
        namespace: resource.namespace.as_deref().map(str::to_owned),
        ..right(resource.kind.group(), &plural(resource.kind), &["list", "watch"])
    };
    let mut all: Vec<_> = reads.iter().map(read).collect();
    if writes.status {
        let istio = Kind::ALL.into_iter().filter(|kind| kind.is_istio());
        all.extend(istio.map(|kind| right(kind.group(), &format!("{}/status", plural(kind)), &["patch"])));
        all.push(right("", "events", &["create"]));
        let reports = right("coordination.k8s.io", "leases", &["patch"]);
        all.push(Right { name: Some(ACKNOWLEDGEMENTS_LEASE.to_owned()), ..reports });
    }
    if writes.leader_election {
        let leases = right("coordination.k8s.io", "leases", &["get", "update"]);
        all.push(Right { verbs: &["create"], ..leases.clone() });
        all.push(Right { name: Some(leader_lease.to_owned()), ..leases });
    }
    all.push(Right { name: Some("meltemi-replicas".to_owned()), ..right("coordination.k8s.io", "leases", &["patch"]) });
    if writes.identity {
        all.push(right("authentication.k8s.io", "tokenreviews", &["create"]));
        all.push(right("authorization.k8s.io", "subjectaccessreviews", &["create"]));
        all.push(Right { name: Some(ROOT_CERT.to_owned()), ..right("", "configmaps", &["create", "patch"]) });
    }
    all
}

fn right(group: &'static str, resource: &str, verbs: &'static [&'static str]) -> Right {
    Right { group, resource: resource.to_owned(), verbs, name: None, namespace: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_writes_nothing_needs_little_more_than_to_read() {
        let reads = [ApiResource { kind: Kind::Pod, namespace: Some("shop".into()) }];
        let least = EnabledWrites { leader_election: false, status: false, identity: false };
        let few = needed(&reads, least, "l");
        assert_eq!(few[0], Right { namespace: Some("shop".into()), ..right("", "pods", &["list", "watch"]) });
        assert_eq!(few.len(), 2);
        let all = needed(&reads, EnabledWrites { leader_election: true, status: true, identity: true }, "l");
        assert!(all.iter().any(|it| it.resource == "virtualservices/status" && it.verbs == ["patch"]));
        assert!(all.iter().any(|it| it.resource == "tokenreviews"));
    }
}
