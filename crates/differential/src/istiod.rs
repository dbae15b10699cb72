//! The real istiod on an API server, and what its proxies get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use testkit::ads::AdsClient;
use testkit::http_client::{HttpRequest, send_one};
use testkit::parity::{CaseProxy, ResourceSource, ResponsesByProxy, fetch_resources};
use testkit::process::Process;
use testkit::wait::eventually;
use testkit::{environment, port};
use tokio::runtime::Runtime;
use wire::google::protobuf::Any;

const SECRETS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// istiod answers nothing where it has nothing.
const WAIT: Duration = Duration::from_millis(1500);
const CLUSTERS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const QUIET: Duration = Duration::from_millis(30);

pub(crate) struct Istiod {
    process: Process,
    address: SocketAddr,
}

impl Istiod {
    pub(crate) fn start(kubeconfig: &Path, folder: &Path, runtime: &Runtime) -> Result<Istiod> {
        let program = environment::reference().context("no API server")?.join("bin/pilot-discovery");
        if !program.exists() {
            bail!("no {}; run `cargo xtask setup --reference` (about ten minutes)", program.display());
        }
        let (http, address) = (port::reserve_address()?, port::reserve_address()?);
        let mut command = Command::new(program);
        command.arg("discovery").arg("--kubeconfig").arg(kubeconfig).current_dir(folder);
        command.arg(format!("--httpAddr={http}")).arg(format!("--grpcAddr={address}"));
        command.args([format!("--secureGRPCAddr={}", port::reserve_address()?)]);
        command.args([format!("--monitoringAddr={}", port::reserve_address()?)]);
        command.args(["--httpsAddr=", "--log_output_level=all:warn"]);
        command.arg(format!("--ctrlz_port={}", port::reserve()?));
        command.env("KUBECONFIG", kubeconfig).envs([
            ("POD_NAMESPACE", "istio-system"),
            ("POD_NAME", "istiod-0"),
            ("CLUSTER_ID", "Kubernetes"),
            ("REVISION", "default"),
            ("ENABLE_LEADER_ELECTION", "false"),
            ("PILOT_CERT_PROVIDER", "istiod"),
            ("INJECTION_WEBHOOK_CONFIG_NAME", ""),
            ("VALIDATION_WEBHOOK_CONFIG_NAME", ""),
            // Only when it answers, not what.
            ("PILOT_DEBOUNCE_AFTER", "20ms"),
        ]);
        let process = Process::start(&mut command, &folder.join("istiod.log"))?;
        let mut istiod = Istiod { process, address };
        let ready = HttpRequest::new(http, "istiod", "/ready");
        runtime
            .block_on(eventually("istiod to be ready", async || {
                istiod.check()?;
                Ok(send_one(&ready).await.is_ok_and(|response| response.status == 200))
            }))
            .with_context(|| format!("see {}", folder.join("istiod.log").display()))?;
        Ok(istiod)
    }

    /// It can end on what it should survive.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.process.exit_status()? {
            Some(status) => bail!("istiod ended ({status})"),
            None => Ok(()),
        }
    }

    /// Waits until this proxy has this cluster, which may never be.
    pub(crate) fn wait_for_cluster(&self, proxy: &CaseProxy, cluster: &str, wait: Duration) -> Result<()> {
        let IstiodStream { runtime, mut client } = IstiodStream::new(self.address, proxy)?;
        runtime.block_on(client.ask(CLUSTERS, &BTreeSet::from([cluster.to_owned()]), wait)).map(|_| ())
    }

    pub(crate) fn responses(&self, proxies: &[CaseProxy]) -> Result<ResponsesByProxy> {
        let ask = |proxy: &CaseProxy| -> Result<_> {
            Ok((proxy.name.clone(), fetch_resources(&mut IstiodStream::new(self.address, proxy)?, proxy)?))
        };
        thread::scope(|scope| {
            let asked: Vec<_> = proxies.iter().map(|proxy| scope.spawn(move || ask(proxy))).collect();
            let joined = asked.into_iter().map(|it| it.join().map_err(|_| anyhow!("a client panicked, see above")));
            joined.map(Result::flatten).collect()
        })
    }
}

struct IstiodStream {
    runtime: Runtime,
    client: AdsClient,
}

impl IstiodStream {
    fn new(address: SocketAddr, proxy: &CaseProxy) -> Result<IstiodStream> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(IstiodStream { runtime, client: AdsClient::new(address, proxy.node()).quiet(QUIET) })
    }
}

impl ResourceSource for IstiodStream {
    fn ask(&mut self, type_url: &str, names: &BTreeSet<String>) -> Result<BTreeMap<String, Any>> {
        // Streams in plaintext get no secrets.
        if type_url == SECRETS {
            return Ok(BTreeMap::new());
        }
        Ok(self.runtime.block_on(self.client.ask(type_url, names, WAIT))?.clone())
    }
}
