//! What the program does in a cluster besides serving: the root in every namespace and in its Secret, tokens asked of the API server,
//! one of two replicas that writes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sources::kube::JSON;
use testkit::cluster::{Api, Cluster};
use testkit::{place, server, skip};
use tokio::time::{Instant, sleep};

use super::{in_turn, namespace, virtual_service};

const SOON: Duration = Duration::from_secs(60);
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/istio-system/leases/meltemi-leader";

struct Replica {
    child: Child,
    secure: SocketAddr,
    webhook: SocketAddr,
}

impl Replica {
    async fn start(cluster: &Cluster, folder: &Path, name: &str) -> Result<Replica> {
        let port = || anyhow::Ok(SocketAddr::from(([127, 0, 0, 1], server::free_port()?)));
        let (secure, webhook) = (port()?, port()?);
        let (kubeconfig, program) = (cluster.kubeconfig()?, tokio::task::spawn_blocking(server::program).await??);
        let log = File::create(folder.join(format!("{name}.log")))?;
        let child = Command::new(program)
            .args(["serve", "--grpcAddr=", "--httpAddr=", "--monitoringAddr="])
            .args([format!("--secureGRPCAddr={secure}"), format!("--httpsAddr={webhook}")])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg("--stateDir")
            .arg(folder.join(name))
            .env("POD_NAME", name)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let replica = Replica { child, secure, webhook };
        until("its secure port is open", async || Ok(TcpStream::connect(secure).is_ok())).await?;
        Ok(replica)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }
}

impl Drop for Replica {
    /// Asked first: an agent takes its Envoy with it.
    fn drop(&mut self) {
        let _ = self.signal(Signal::SIGTERM);
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn until(what: &str, mut there: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + SOON;
    while !there().await? {
        ensure!(Instant::now() < end, "not after {SOON:?}: {what}");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// `Null`: there is none.
async fn read(api: &Api, path: &str) -> Value {
    let text = api.client.get(path, JSON).await.unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

fn root_of(space: &str) -> String {
    format!("/api/v1/namespaces/{space}/configmaps/istio-ca-root-cert")
}

#[test]
fn one_of_two_replicas_keeps_the_root_in_every_namespace() {
    in_turn(async |cluster| {
        let (api, folder) = (cluster.api().await?, tempfile::tempdir()?);
        for space in ["istio-system", "duty"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let transitions = async || read(&api, LEASE).await["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        let before = transitions().await;
        let first = Replica::start(cluster, folder.path(), "first").await?;
        until("the root is in the namespace", async || Ok(!read(&api, &root_of("duty")).await.is_null())).await?;
        let second = Replica::start(cluster, folder.path(), "second").await?;
        let root = |name: &str| fs::read_to_string(folder.path().join(name).join("ca/ca-cert.pem"));
        until("the second knows the root", async || Ok(root("second").is_ok())).await?;
        ensure!(root("first")? == root("second")?, "two replicas with two roots");
        let held = read(&api, &root_of("duty")).await["data"]["root-cert.pem"].as_str().map(str::to_owned);
        ensure!(held.as_deref() == Some(root("first")?.as_str()), "{held:?}");
        ensure!(read(&api, &root_of("kube-public")).await.is_null(), "a namespace without workloads needs none");

        // Somebody edits it, somebody deletes it.
        let map = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "istio-ca-root-cert", "namespace": "duty" } });
        let mut edited = map.clone();
        edited["data"] = json!({ "root-cert.pem": "evil" });
        api.apply(&edited).await?;
        let right =
            async || Ok(read(&api, &root_of("duty")).await["data"]["root-cert.pem"].as_str() == held.as_deref());
        until("the edit is undone", &right).await?;
        api.delete(&map).await?;
        until("the deletion is undone", &right).await?;

        // The leader goes, once with notice and once without.
        let holder = async || Ok::<_, anyhow::Error>(read(&api, LEASE).await["spec"]["holderIdentity"].clone());
        let now = holder().await?;
        ensure!(now == "first", "{now} leads");
        first.signal(Signal::SIGTERM)?;
        until("the other leads", async || Ok(holder().await? == "second")).await?;
        api.delete(&map).await?;
        until("the new leader writes", &right).await?;
        let third = Replica::start(cluster, folder.path(), "third").await?;
        second.signal(Signal::SIGKILL)?;
        until("the third leads when the lease is over", async || Ok(holder().await? == "third")).await?;
        let moves = transitions().await - before;
        ensure!(moves == 3, "{moves} times the lease changed hands");
        drop(third);
        Ok(())
    });
}

/// How many the API server has answered so far.
async fn reviews(api: &Api) -> Result<f64> {
    let page = api.client.get("/metrics", "text/plain").await?;
    let page = String::from_utf8_lossy(&page);
    let of_tokens =
        |line: &&str| line.starts_with("apiserver_request_total{") && line.contains("resource=\"tokenreviews\"");
    let counts = page.lines().filter(of_tokens).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(counts.sum())
}

#[test]
fn a_workload_shows_the_token_of_its_account() {
    let Some(envoy) = place::envoy() else {
        return skip("a token of the API server: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    in_turn(async |cluster| {
        let (api, folder) = (cluster.api().await?, tempfile::tempdir()?);
        for space in ["istio-system", "tokens"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "cart", "namespace": "tokens" } });
        api.apply(&account).await?;
        let replica = Replica::start(cluster, folder.path(), "tokens").await?;
        until("the root is in the namespace", async || Ok(!read(&api, &root_of("tokens")).await.is_null())).await?;
        let root = read(&api, &root_of("tokens")).await;
        fs::write(folder.path().join("root"), root["data"]["root-cert.pem"].as_str().unwrap_or_default())?;
        let admin = SocketAddr::from(([127, 0, 0, 1], server::free_port()?));
        let before = reviews(&api).await?;
        // For another audience it is not believed.
        for (audience, works) in [("vault", false), ("istio-ca", true)] {
            let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [audience] } });
            let token = api.post("/api/v1/namespaces/tokens/serviceaccounts/cart/token", &asked).await?;
            fs::write(folder.path().join("token"), token["status"]["token"].as_str().unwrap_or_default())?;
            let _agent = agent(&envoy, folder.path(), replica.secure, admin)?;
            let named =
                || admin_page(admin).is_ok_and(|page| page.contains("spiffe://cluster.local/ns/tokens/sa/cart"));
            if works {
                until("Envoy has its certificate", async || Ok(named())).await?;
            } else {
                sleep(Duration::from_secs(3)).await;
                ensure!(!named(), "a token for {audience} is believed");
            }
        }
        // An agent shows its token with every attempt, for its certificate and for its stream.
        let asked = reviews(&api).await? - before;
        ensure!(asked == 2.0, "{asked} TokenReviews of two tokens");
        Ok(())
    });
}

#[test]
fn the_api_server_asks_before_it_stores() {
    in_turn(async |cluster| {
        let (api, folder) = (cluster.api().await?, tempfile::tempdir()?);
        for space in ["istio-system", "asked"] {
            api.apply(&namespace(space, &json!({}))).await?;
        }
        let replica = Replica::start(cluster, folder.path(), "asked").await?;
        let webhook = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": { "name": "istio-validator", "labels": { "istio.io/rev": "default" } },
            "webhooks": [{
                "name": "validation.istio.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": { "url": format!("https://localhost:{}/validate", replica.webhook.port()) },
                "rules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": ["*.istio.io", "networking.istio.io"], "apiVersions": ["*"], "resources": ["virtualservices"] }],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "asked" } },
            }],
        });
        api.apply(&webhook).await?;
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/istio-validator";
        let trusted = async || Ok(read(&api, path).await["webhooks"][0]["clientConfig"]["caBundle"].is_string());
        until("the webhook is trusted", trusted).await?;
        let good = virtual_service("asked", "a", "/");
        until("a good object is stored", async || Ok(api.apply(&good).await.is_ok())).await?;
        let refused = api.apply(&virtual_service("asked", "b", "(")).await.err().map(|error| format!("{error:#}"));
        let refused = refused.unwrap_or_default();
        api.delete(&webhook).await?;
        api.delete(&good).await?;
        ensure!(
            refused.contains("validation.istio.io") && refused.contains("spec.http[0].match[0].uri"),
            "{refused:?}"
        );
        Ok(())
    });
}

fn agent(envoy: &Path, folder: &Path, server: SocketAddr, admin: SocketAddr) -> Result<Replica> {
    let log = File::create(folder.join("agent.log"))?;
    let child = Command::new(server::program()?)
        .args(["agent", "--proxy", "cart-1.tokens", "--ip", "127.0.0.1", "--service-account", "cart", "--key", "P-256"])
        .args(["--server", &server.to_string(), "--admin", &admin.to_string(), "--drain", "0s"])
        .args(["--metadata", "INTERCEPTION_MODE=NONE"])
        .arg("--root")
        .arg(folder.join("root"))
        .arg("--token")
        .arg(folder.join("token"))
        .arg("--workdir")
        .arg(folder.join("work"))
        .arg("--envoy")
        .arg(envoy)
        .args(["--", "--use-dynamic-base-id", "-l", "warn"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    Ok(Replica { child, secure: server, webhook: server })
}

fn admin_page(admin: SocketAddr) -> Result<String> {
    let mut socket = TcpStream::connect(admin)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(socket, "GET /certs HTTP/1.1\r\nHost: envoy\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
