//! What may be wrong with the way to the API server: slow, a name that means nothing, another certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use config::kind::Kind;
use serde_json::json;
use sources::kube::{ApiAccess, KubeClient, Pacing, State};
use testkit::cluster::{ApiFault, FaultProxy, SeenRequest, WatchedStore, options};
use testkit::test_ca::{LeafCertificate, TestCa};
use testkit::wait::{DEADLINE, eventually, observe};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs};

use super::instance::Instance;
use super::{namespace, service, with_cluster};

const HASTE: Pacing = Pacing {
    first_retry: Duration::from_millis(100),
    longest_retry: Duration::from_secs(2),
    between_lists: Duration::from_millis(500),
    idle: Duration::from_secs(30),
    watch: Duration::from_secs(30),
    absent: Duration::from_secs(10),
    audit: Duration::ZERO,
    late: Duration::from_secs(1),
    page: 500,
};

/// Row F-03.
#[test]
fn a_slow_api_server_is_waited_for_and_no_watch_begins_twice() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let faulty = FaultProxy::start(cluster.client().await?).await?;
        faulty.set(ApiFault::Slow(Duration::from_secs(3)));
        let kubeconfig = cluster.kubeconfig_for(&faulty.url(), "any")?;
        // An audit lists too.
        let instance = Instance::start(&kubeconfig, &[], &[("MELTEMI_AUDIT_INTERVAL", "0s")]).await?;
        eventually("a slow start is logged", async || {
            Ok(instance.log().contains("waiting for the initial lists of the API server"))
        })
        .await?;
        ensure!(!instance.is_ready(), "it is ready before it has read everything");
        let instance = instance.ready().await?;
        faulty.set(ApiFault::None);
        let mut seen = Vec::new();
        let count = |seen: &[SeenRequest], watch: bool| {
            seen.iter().filter(|it| it.watch == watch && it.path.starts_with("/api/v1/services")).count()
        };
        eventually("every watch lives", async || {
            seen.extend(faulty.seen());
            Ok(count(&seen, true) > 0 && instance.metric("meltemi_watch_state", "\"stalled\"")? == 0.0)
        })
        .await?;
        let (lists, watches) = (count(&seen, false), count(&seen, true));
        ensure!((lists, watches) == (1, 1), "{lists} lists and {watches} watches");
        Ok(())
    });
}

fn kubeconfig(file: &Path, url: &str, authority: Option<&Path>) -> Result<()> {
    let mut server = json!({ "server": url });
    if let Some(authority) = authority {
        server["certificate-authority"] = json!(authority);
    }
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{ "name": "test", "cluster": server }],
        "users": [{ "name": "test", "user": { "token": "any" } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
    });
    Ok(std::fs::write(file, config.to_string())?)
}

/// Row F-26.
#[test]
fn a_name_that_means_nothing_is_asked_for_until_it_does() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("ways", &json!({}))).await?;
        api.apply(&service("ways", "a")).await?;
        let (faulty, folder) = (FaultProxy::start(cluster.client().await?).await?, tempfile::tempdir()?);
        let file = folder.path().join("kubeconfig");
        kubeconfig(&file, "http://no-such-name.invalid", None)?;
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(file.clone()), rate: 1000 }).await?;
        let starting = WatchedStore::start(client, options(HASTE));
        let mended = async {
            // Some attempts fail before that.
            observe(Duration::from_secs(2)).await;
            kubeconfig(&file, &faulty.url(), None)
        };
        let (live, mended) = tokio::join!(tokio::time::timeout(DEADLINE, starting), mended);
        mended?;
        ensure!(live?.received.holds(Kind::Service, "ways", "a"), "it is read once the name is good");
        Ok(())
    });
}

/// TLS in front of another server, with a certificate that can be replaced; that ends what is open.
struct Tls {
    address: SocketAddr,
    config: watch::Sender<Arc<ServerConfig>>,
    _running: JoinSet<()>,
}

fn config(leaf: &LeafCertificate) -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_slice_iter(leaf.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes())?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}

impl Tls {
    async fn start(behind: SocketAddr, leaf: &LeafCertificate) -> Result<Tls> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (config, mut newest) = watch::channel(config(leaf)?);
        let (address, mut running) = (listener.local_addr()?, JoinSet::new());
        running.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    changed = newest.changed() => match changed {
                        Ok(()) => connections.abort_all(),
                        Err(_) => return,
                    },
                    accepted = listener.accept() => {
                        let Ok((io, _)) = accepted else { return };
                        let acceptor = TlsAcceptor::from(newest.borrow().clone());
                        connections.spawn(async move {
                            let (Ok(mut io), Ok(mut server)) =
                                (acceptor.accept(io).await, TcpStream::connect(behind).await)
                            else {
                                return;
                            };
                            // Either end may go at any time.
                            let _ = copy_bidirectional(&mut io, &mut server).await;
                        });
                    }
                }
            }
        });
        Ok(Tls { address, config, _running: running })
    }
}

/// Row F-26.
#[test]
fn another_certificate_of_the_api_server_is_believed_once_its_authority_is() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("ways", &json!({}))).await?;
        api.apply(&service("ways", "a")).await?;
        let (old, new) = (TestCa::new()?, TestCa::new()?);
        let (faulty, folder) = (FaultProxy::start(cluster.client().await?).await?, tempfile::tempdir()?);
        let (file, root) = (folder.path().join("kubeconfig"), folder.path().join("root.pem"));
        let tls = Tls::start(faulty.address, &old.host_certificate("localhost")?).await?;
        std::fs::write(&root, old.root())?;
        kubeconfig(&file, &format!("https://localhost:{}", tls.address.port()), Some(&root))?;
        let client = KubeClient::new(&ApiAccess { kubeconfig: Some(file), rate: 1000 }).await?;
        let mut live = WatchedStore::start(client, options(HASTE)).await;
        tls.config.send_replace(config(&new.host_certificate("localhost")?)?);
        let is = |live: &WatchedStore, wanted: State| {
            live.health.snapshot().iter().all(|(_, watch)| watch.state == wanted || watch.state == State::Absent)
        };
        live.until("the stranger is not believed", |live| is(live, State::Stalled)).await?;
        ensure!(live.received.deletions == 0, "{} removals", live.received.deletions);
        api.apply(&service("ways", "b")).await?;
        std::fs::write(&root, new.root())?;
        let caught_up = |live: &WatchedStore| live.received.holds(Kind::Service, "ways", "b") && is(live, State::Live);
        live.until("with its authority it is", caught_up).await?;
        ensure!(live.received.deletions == 0, "{} removals", live.received.deletions);
        Ok(())
    });
}
