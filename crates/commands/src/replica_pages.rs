//! Pages of all replicas of a control plane: that of the server that was asked, over plain HTTP, and those of the other replicas of its revision,
//! over their secure ports with a token.

use std::path::Path;

use agent::DebugEndpoint;
use anyhow::{Context, Result};
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use server::{ReplicaState, ReplicaStatus};
use zeroize::Zeroizing;

use super::client::{self, PageClient};
use settings::args::ServerArgs;

/// Where the chart mounts a token for the secure port.
const MOUNTED_TOKEN: &str = "/var/run/secrets/tokens/istio-token";

/// Why a replica is not asked that is most likely gone.
pub(crate) const SILENT: &str = "it has been silent";

pub(crate) struct ReplicaPages<'a> {
    server: PageClient<'a>,
    /// Empty: there is one replica, or no cluster.
    own_name: String,
    others: Vec<OtherReplica>,
    token: Zeroizing<String>,
}

struct OtherReplica {
    name: String,
    secure: DebugEndpoint,
    /// Empty: its monitoring port is off.
    monitoring: String,
}

/// The page `/debug/replica_access`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaAccessPage {
    server_name: String,
    roots: String,
}

/// Something of one replica.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OfReplica<T> {
    /// Empty: it is the only one.
    pub(crate) replica: String,
    pub(crate) value: T,
}

impl<'a> ReplicaPages<'a> {
    /// Replicas that cannot be asked are named on stderr.
    pub(crate) async fn find(target: &'a ServerArgs) -> Result<ReplicaPages<'a>> {
        let mut pages = ReplicaPages::new(target)?;
        for (replica, why) in pages.look(target).await? {
            not_asked(&replica, why);
        }
        Ok(pages)
    }

    /// Of the asked server alone, until `look`.
    pub(crate) fn new(target: &'a ServerArgs) -> Result<ReplicaPages<'a>> {
        let server = PageClient::new(target)?;
        Ok(ReplicaPages { server, own_name: String::new(), others: Vec::new(), token: Zeroizing::default() })
    }

    /// Looks for the other replicas. Returns those that cannot be asked, and why.
    pub(crate) async fn look(&mut self, target: &ServerArgs) -> Result<Vec<(String, &'static str)>> {
        self.others.clear();
        // A server that is not reached is reported by the page that is wanted.
        let seen: Vec<ReplicaStatus> =
            self.server.page("/debug/replicas", "a list of replicas").await.unwrap_or_default();
        let (own, others): (Vec<_>, Vec<_>) = seen.into_iter().partition(|it| it.own);
        if others.is_empty() {
            return Ok(Vec::new());
        }
        self.own_name = own.into_iter().next().map(|own| own.name).unwrap_or_default();
        let access: Option<ReplicaAccessPage> =
            self.server.page("/debug/replica_access", "how replicas are reached").await?;
        self.token = token(target)?;
        let mut not_asked = Vec::new();
        for other in others {
            match endpoint(&other, access.as_ref(), &self.token) {
                Ok(secure) => {
                    self.others.push(OtherReplica { name: other.name, secure, monitoring: other.monitoring });
                }
                Err(why) => not_asked.push((other.name, why)),
            }
        }
        Ok(not_asked)
    }

    /// `path`: of a debug page. Other replicas that do not answer are named on stderr.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<Vec<OfReplica<T>>> {
        let mut all = Vec::new();
        for OfReplica { replica, value } in self.read_each(path, what).await {
            match value {
                Ok(value) => all.push(OfReplica { replica, value }),
                Err(why) if all.is_empty() => return Err(why),
                Err(why) => not_asked(&replica, &format!("{why:#}")),
            }
        }
        Ok(all)
    }

    /// The answer of each replica, that of the asked one first.
    pub(crate) async fn read_each<T: DeserializeOwned>(&self, path: &str, what: &str) -> Vec<OfReplica<Result<T>>> {
        let own = self.server.page(path, what).await;
        let mut all = vec![OfReplica { replica: self.own_name.clone(), value: own }];
        for other in &self.others {
            let page = path.strip_prefix("/debug/").unwrap_or(path);
            let answer = other.secure.page(&self.token, page).await.map_err(anyhow::Error::from);
            let value = answer.and_then(|body| {
                serde_json::from_slice(&body).with_context(|| format!("it answered something else than {what}"))
            });
            all.push(OfReplica { replica: other.name.clone(), value });
        }
        all
    }

    /// The metrics, which need no token, of each replica that tells them.
    pub(crate) async fn metrics(&self) -> Result<Vec<OfReplica<String>>> {
        let own = self.server.text(Method::GET, "/metrics").await?;
        let mut all = vec![OfReplica { replica: self.own_name.clone(), value: own }];
        for other in self.others.iter().filter(|other| !other.monitoring.is_empty()) {
            let url = format!("http://{}", other.monitoring);
            match PageClient::foreign(&url).text(Method::GET, "/metrics").await {
                Ok(value) => all.push(OfReplica { replica: other.name.clone(), value }),
                Err(why) => not_asked(&other.name, &format!("{why:#}")),
            }
        }
        Ok(all)
    }
}

/// That of the command line, else the mounted one. Empty: there is none.
fn token(target: &ServerArgs) -> Result<Zeroizing<String>> {
    let mounted = Path::new(MOUNTED_TOKEN);
    match &target.token {
        // It was read from stdin already.
        Some(file) if file == Path::new("-") => Ok(Zeroizing::default()),
        Some(file) => client::token(file),
        None if mounted.exists() => client::token(mounted),
        None => Ok(Zeroizing::default()),
    }
}

/// Or why it cannot be asked.
fn endpoint(
    other: &ReplicaStatus,
    access: Option<&ReplicaAccessPage>,
    token: &str,
) -> Result<DebugEndpoint, &'static str> {
    match access {
        _ if other.state == ReplicaState::Silent => Err(SILENT),
        _ if other.secure.is_empty() => {
            Err("it does not say where its secure port is; set POD_IP to the address of its pod")
        }
        _ if token.is_empty() => Err("it takes a token: name a file with --token"),
        None => Err("the secure port of the asked server is off, and with it the roots that verify others"),
        Some(ReplicaAccessPage { server_name, roots }) => {
            Ok(DebugEndpoint { address: other.secure.clone(), name: server_name.clone(), roots: roots.clone() })
        }
    }
}

fn not_asked(replica: &str, why: &str) {
    eprintln!("warning: replica {replica} was not asked: {why}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_cannot_be_asked_has_a_reason() {
        let other = |state, secure: &str| ReplicaStatus {
            name: "b".into(),
            own: false,
            version: String::new(),
            streams: 1,
            inputs: String::new(),
            state,
            differs_in: Vec::new(),
            silent_seconds: 0,
            secure: secure.into(),
            monitoring: String::new(),
        };
        let access = ReplicaAccessPage { server_name: "istiod.istio-system.svc".into(), roots: "pem".into() };
        let fine = other(ReplicaState::InStep, "10.0.0.7:15012");
        assert_eq!(endpoint(&fine, Some(&access), "t").map(|it| it.address), Ok("10.0.0.7:15012".to_owned()));
        for (other, access, token, why) in [
            (&other(ReplicaState::Silent, "10.0.0.7:15012"), Some(&access), "t", "silent"),
            (&other(ReplicaState::InStep, ""), Some(&access), "t", "POD_IP"),
            (&fine, Some(&access), "", "--token"),
            (&fine, None, "t", "is off"),
        ] {
            assert!(endpoint(other, access, token).is_err_and(|reason| reason.contains(why)), "{why}");
        }
    }
}
