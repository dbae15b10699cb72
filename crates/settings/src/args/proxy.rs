//! The flags of commands for one proxy: `bootstrap`, `agent`, `install-agent`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::{Format, ProxyType};

#[derive(Debug, clap::Args)]
pub struct BootstrapArgs {
    /// Name of the proxy; with --config it must be a Pod of the folder
    #[arg(long, value_name = "POD.NAMESPACE")]
    pub proxy: String,
    /// Address of the server's xDS port, HOST:PORT [default: that of the revision which the labels of the Namespace or the Pod name,
    /// as the API server has them, tags resolved]
    #[arg(long, value_name = "ADDR")]
    pub server: Option<String>,
    /// How to reach the API server that has the labels [default: $KUBECONFIG or the user's own, else the account of the pod]
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of the control plane
    #[arg(long, value_name = "NAME", default_value = "istio-system")]
    pub istio_namespace: String,
    /// Folder with the Pod (its address, labels, account and node)
    #[arg(long, value_name = "DIR")]
    pub config: Option<PathBuf>,
    /// Kind of proxy [default: router if the Pod is injected with the template `gateway`, else sidecar]
    #[arg(long, value_enum)]
    pub proxy_type: Option<ProxyType>,
    /// Address of the proxy [default: that of the Pod]
    #[arg(long, value_name = "IP")]
    pub ip: Option<std::net::IpAddr>,
    /// A label of the workload; may be repeated
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    pub labels: Vec<(String, String)>,
    /// Service account of the workload
    #[arg(long, value_name = "NAME")]
    pub service_account: Option<String>,
    /// Where the proxy runs
    #[arg(long, value_name = "REGION/ZONE/SUBZONE")]
    pub locality: Option<String>,
    /// A key of the node's metadata (JSON, or else a string); may be repeated
    #[arg(long = "metadata", value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// DNS suffix of the cluster
    #[arg(long = "domain", default_value = "cluster.local")]
    pub domain: String,
    /// Name of the cluster [default: $CLUSTER_ID, else Kubernetes]
    #[arg(long = "clusterID", value_name = "NAME")]
    pub cluster_id: Option<String>,
    /// Unix socket where an agent serves certificates, such as ./var/run/secrets/workload-spiffe-uds/socket
    /// [default: ask the server]
    #[arg(long, value_name = "PATH")]
    pub sds_socket: Option<String>,
    /// The server's port is the one with TLS; the certificate comes from --sds-socket
    #[arg(long, requires = "sds_socket")]
    pub secure: bool,
    /// The name that the server's certificate must have [default: the host of --server]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Envoy's admin address; empty for none
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:15000")]
    pub admin: String,
    /// State of the world instead of delta
    #[arg(long)]
    pub sotw: bool,
    /// Output
    #[arg(short, long, value_enum, default_value = "yaml")]
    pub output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SdsFrom {
    Server,
}

/// The flags of `bootstrap`, and SDS by the server instead of an agent.
#[derive(Debug, clap::Args)]
pub struct BootstrapCommand {
    #[command(flatten)]
    pub bootstrap: BootstrapArgs,
    /// The server generates key and certificate, for the token of the workload; it must run with MELTEMI_WORKLOAD_SECRETS=true
    #[arg(long, value_enum, conflicts_with = "sds_socket", requires_all = ["token", "root"])]
    pub sds: Option<SdsFrom>,
    /// File with the roots of the mesh, as Envoy will find it
    #[arg(long, value_name = "FILE", requires = "sds")]
    pub root: Option<PathBuf>,
    /// File with the token of the workload, as Envoy will find it
    #[arg(long, value_name = "FILE", requires = "sds")]
    pub token: Option<PathBuf>,
    /// Write a file through which Envoy watches token and roots for renewals [default: it reads both once]
    #[arg(long, value_name = "FILE", requires = "sds")]
    pub token_secret: Option<PathBuf>,
}

/// The flags of `bootstrap`, and those of the agent.
#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    #[command(flatten)]
    pub bootstrap: BootstrapArgs,
    /// File with the roots of the mesh
    #[arg(long, value_name = "FILE", default_value = "./var/run/secrets/istio/root-cert.pem")]
    pub root: PathBuf,
    /// File with the token of the workload; `meltemi token create` makes one
    #[arg(long, value_name = "FILE", default_value = "./var/run/secrets/tokens/istio-token")]
    pub token: PathBuf,
    /// Where certificates come from [default: --server]
    #[arg(long, value_name = "HOST:PORT")]
    pub ca: Option<String>,
    /// The trust domain that the signing request names
    #[arg(long, default_value = "cluster.local")]
    pub trust_domain: String,
    /// Requested lifetime of certificates
    #[arg(long, value_name = "DURATION", default_value = "24h")]
    pub lifetime: String,
    /// Kind of the workload's key: P-256, P-384, RSA-2048, RSA-4096 [default: $ECC_SIGNATURE_ALGORITHM, else RSA-2048]
    #[arg(long, value_name = "KIND")]
    pub key: Option<String>,
    /// Folder for the socket and Envoy's bootstrap
    #[arg(long, value_name = "DIR", default_value = "./etc/istio/proxy")]
    pub workdir: PathBuf,
    /// The Envoy to start
    #[arg(long, value_name = "FILE", default_value = "envoy")]
    pub envoy: PathBuf,
    /// Ports for the kubelet, such as 15020,15021: whether Envoy is ready, and the probes of $ISTIO_KUBE_APP_PROBERS [default: none]
    #[arg(long = "status-port", value_name = "PORT", value_delimiter = ',', requires = "ip")]
    pub status_ports: Vec<u16>,
    /// Drain time of connections after SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub drain: String,
    /// More arguments for Envoy
    #[arg(last = true, value_name = "ARGS")]
    pub envoy_args: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct InstallAgentArgs {
    /// Where to; a file that is there is replaced
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use config::store::Snapshot;
    use inject::{ControlPlane, InjectionOutcome, Injector, NativeSidecars, Request};
    use serde_json::{Value, json};
    use testkit::injection::{Installation, complete, read};

    use crate::args::{self, Command, ProxyType};

    /// The pod of a Deployment, injected by these of the chart's templates, which its annotation names.
    fn injected(native_sidecars: NativeSidecars, templates: &str) -> Value {
        let mut installation = Installation::load("default");
        let chart = testkit::environment::repository().join("deploy/helm/meltemi/files/injection");
        let text = read(&chart.join("shared.tpl")) + &read(&chart.join("meltemi-agent.tpl"));
        installation.config["templates"]["meltemi-agent"] = text.into();
        installation.values["sidecarInjectorWebhook"]["agent"] = json!({ "image": "m", "envoyImage": "e" });
        let data = [("config", &installation.config), ("values", &installation.values)];
        let data = data.into_iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect();
        let plane = ControlPlane {
            revision: "default".into(),
            native_sidecars,
            openshift: false,
            compliance_policy: String::new(),
            cluster_id: "Kubernetes".into(),
        };
        let probe = json!({ "httpGet": { "port": 80 } });
        let container = json!({ "name": "app", "image": "a", "readinessProbe": probe });
        let gateway = json!({ "name": "istio-proxy", "image": "auto" });
        let containers = if templates.contains("gateway") { [gateway] } else { [container] };
        let annotations = json!({ "inject.istio.io/templates": templates });
        let metadata = json!({ "name": "cart-1", "labels": { "app": "cart" }, "annotations": annotations });
        let pod = json!({ "metadata": metadata, "spec": { "containers": containers } });
        let request = Request { pod: complete(&pod), namespace: "shop", path: "/inject", workload: None };
        match Injector::parse(&data).unwrap().inject(request, &plane, &Snapshot::empty()).outcome.unwrap() {
            InjectionOutcome::Injected { pod, .. } => pod,
            InjectionOutcome::Skipped(reason) => panic!("{reason}"),
        }
    }

    fn arguments(container: &Value) -> Command {
        let words = container["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let given = words.map(|word| {
            let word = word.replace("$(POD_NAME)", "cart-1").replace("$(POD_NAMESPACE)", "shop");
            word.replace("$(INSTANCE_IP)", "10.0.0.7").replace("$(SERVICE_ACCOUNT)", "cart")
        });
        let (args, ignored) = args::parse(["meltemi".to_owned()].into_iter().chain(given).map(Into::into)).unwrap();
        assert!(ignored.is_empty(), "{ignored:?}");
        args.command
    }

    #[test]
    fn what_the_chart_injects_is_understood_by_the_agent() {
        for (native, list) in [(NativeSidecars::On, "initContainers"), (NativeSidecars::Off, "containers")] {
            let pod = injected(native, "sidecar,meltemi-agent");
            let install = &pod["spec"]["initContainers"][0];
            assert_eq!((&install["name"], &install["image"]), (&json!("meltemi-agent"), &json!("m")), "{pod:#}");
            let Command::InstallAgent(install) = arguments(install) else { panic!("{install}") };
            let named = |it: &&Value| it["name"] == "istio-proxy";
            let sidecar = pod["spec"][list].as_array().unwrap().iter().find(named).unwrap();
            assert_eq!(sidecar["image"], "e");
            assert_eq!(sidecar["command"], json!([install.file]));
            assert!(!sidecar.to_string().contains("pilot-agent"), "{sidecar:#}");
            assert_eq!(sidecar["readinessProbe"]["httpGet"], json!({ "path": "/healthz/ready", "port": 15021 }));
            let Command::Agent(agent) = arguments(sidecar) else { panic!("{sidecar:#}") };
            assert_eq!(agent.bootstrap.proxy, "cart-1.shop");
            assert_eq!(agent.bootstrap.server.as_deref(), Some("istiod.istio-system.svc:15012"));
            assert_eq!(agent.bootstrap.labels, [("app".to_owned(), "cart".to_owned())]);
            assert!(agent.bootstrap.metadata.contains(&("INTERCEPTION_MODE".to_owned(), "REDIRECT".to_owned())));
            assert_eq!(agent.envoy_args, ["-l", "warning", "--component-log-level", "misc:error"]);
            let app = pod["spec"]["containers"].as_array().unwrap().iter().find(|it| it["name"] == "app").unwrap();
            assert_eq!(app["readinessProbe"]["httpGet"]["port"], 15020, "{app:#}");
            assert_eq!(
                (agent.status_ports, agent.bootstrap.proxy_type),
                (vec![15020, 15021], Some(ProxyType::Sidecar))
            );
            let probes = sidecar["env"].as_array().unwrap().iter().find(|it| it["name"] == "ISTIO_KUBE_APP_PROBERS");
            agent::Probes::parse(probes.unwrap()["value"].as_str().unwrap()).unwrap();
            assert!(!pod["metadata"]["annotations"].to_string().contains("prometheus.io/port"), "{pod:#}");
        }
    }

    #[test]
    fn a_gateway_of_the_agent_is_one_container_and_a_router() {
        let pod = injected(NativeSidecars::On, "gateway,meltemi-agent");
        let containers = pod["spec"]["containers"].as_array().unwrap();
        assert_eq!((containers.len(), &containers[0]["image"]), (1, &json!("e")), "{pod:#}");
        assert_eq!(pod["spec"]["initContainers"].as_array().unwrap().len(), 1, "{pod:#}");
        assert_eq!(containers[0]["readinessProbe"]["httpGet"]["port"], 15021);
        let Command::Agent(agent) = arguments(&containers[0]) else { panic!("{pod:#}") };
        assert_eq!((agent.bootstrap.proxy_type, agent.status_ports), (Some(ProxyType::Router), vec![15020, 15021]));
    }
}
