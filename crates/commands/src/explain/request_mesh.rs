//! Where the resources of the proxies on a request's way come from: computed from a folder, or the config dumps of a running server.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use config::kinds::service::ServiceTargetPort;
use config::store::{Name, Snapshot};
use explain::{ExplainedProxy, HopSide, ProxyResources};
use model::{Environment, Mesh, Proxy, ProxyKind};
use serde_json::Value;

use crate::client::{self, PageClient};
use crate::folder::{self, PodName};
use crate::input;
use settings::args::{Env, ExplainSource, InputArgs, ServerArgs};
use settings::mesh_settings;

pub(super) enum RequestProxies {
    Folder(Box<FolderProxies>),
    Server(ServerProxies),
}

impl RequestProxies {
    /// The proxy of a pod, or of a gateway.
    pub(super) fn named(&self, name: &str, side: HopSide) -> Result<ProxyResources> {
        match self {
            RequestProxies::Folder(folder) => folder.resources(&folder.pod_named(name, side)?, side),
            RequestProxies::Server(server) => server.named(name),
        }
    }

    /// `None`: there is no proxy at this address.
    pub(super) fn at(&self, ip: IpAddr) -> Result<Option<Arc<ProxyResources>>> {
        match self {
            RequestProxies::Folder(folder) => folder.at(ip),
            RequestProxies::Server(server) => server.at(ip),
        }
    }

    /// The port of a gateway's pod for a port of its Service. Only a folder has the Services.
    pub(super) fn gateway_port(&self, name: &str, port: u16) -> u16 {
        match self {
            RequestProxies::Folder(folder) => folder.gateway_port(name, port).unwrap_or(port),
            RequestProxies::Server(_) => port,
        }
    }
}

pub(super) struct FolderProxies {
    snapshot: Arc<Snapshot>,
    mesh: Mesh,
    environment: Arc<Environment>,
}

impl FolderProxies {
    pub(super) fn new(source: ExplainSource, env: &Env) -> Result<FolderProxies> {
        let settings = mesh_settings(source.mesh, &env.mesh);
        let loaded = input::read(InputArgs { path: source.config, kubeconfig: None, max_file_size: None }, &settings)?;
        let (environment, snapshot) = (Arc::new(settings.environment()), loaded.store.snapshot());
        Ok(FolderProxies { mesh: Mesh::new(&snapshot, &environment), snapshot, environment })
    }

    /// A Pod, or the first one that a Gateway of this name selects.
    fn pod_named(&self, name: &str, side: HopSide) -> Result<Name> {
        let PodName(named) = name.parse()?;
        let gateway = self.snapshot.gateways.get(&named).filter(|_| side == HopSide::Gateway);
        match gateway {
            Some(gateway) if !self.snapshot.pods.contains_key(&named) => {
                let mut pods = self.snapshot.pods.iter();
                let selected = pods.find(|(_, pod)| pod.meta.labels.contains_all(&gateway.spec.selector));
                let (pod, _) =
                    selected.with_context(|| format!("no Pod has the labels that Gateway {name} selects"))?;
                Ok(pod.clone())
            }
            _ => Ok(named),
        }
    }

    fn resources(&self, name: &Name, side: HopSide) -> Result<ProxyResources> {
        let pod = folder::pod(&self.snapshot, &PodName(name.clone()))?;
        let kind = if side == HopSide::Gateway { ProxyKind::Gateway } else { folder::proxy_kind(None, &pod.meta) };
        let proxy = Arc::new(Proxy::new(&Proxy::node_of_pod(pod, kind, &self.environment))?);
        let account = Some(&*pod.spec.service_account).filter(|it| !it.is_empty()).unwrap_or("default");
        let mut resources = ProxyResources::new(ExplainedProxy {
            name: format!("{}.{}", name.name, name.namespace),
            address: pod.spec.ips.first().copied(),
            identity: Some(format!("spiffe://{}/ns/{}/sa/{account}", self.mesh.config.trust_domain, name.namespace)),
            namespace: name.namespace.to_string(),
            domain: self.environment.domain.to_string(),
        });
        for rendered in views::render(&self.mesh, &self.mesh.place(&proxy)) {
            let made_from = rendered.made_from.iter().map(ToString::to_string).collect();
            resources.add(&rendered.name, &rendered.any, made_from)?;
        }
        Ok(resources)
    }

    /// A pod without the label of mutual TLS and without a gateway's template has no proxy.
    fn at(&self, ip: IpAddr) -> Result<Option<Arc<ProxyResources>>> {
        let Some((name, pod)) = self.snapshot.pods.iter().find(|(_, pod)| pod.spec.ips.contains(&ip)) else {
            return Ok(None);
        };
        let is_gateway = folder::proxy_kind(None, &pod.meta) == ProxyKind::Gateway;
        let is_injected = pod.meta.labels.get("security.istio.io/tlsMode").is_some_and(|mode| mode == "istio");
        if !is_gateway && !is_injected {
            return Ok(None);
        }
        let side = if is_gateway { HopSide::Gateway } else { HopSide::Server };
        self.resources(name, side).map(|it| Some(Arc::new(it)))
    }

    fn gateway_port(&self, name: &str, port: u16) -> Option<u16> {
        let pod = self.snapshot.pods.get(&self.pod_named(name, HopSide::Gateway).ok()?)?;
        let selects = |service: &&Arc<config::meta::Object<config::kinds::service::ServiceSpec>>| {
            service.meta.namespace == pod.meta.namespace
                && !service.spec.selector.is_empty()
                && pod.meta.labels.contains_all(&service.spec.selector)
        };
        let own = self.snapshot.services.values().filter(selects);
        let found = own.flat_map(|it| &it.spec.ports).find(|it| it.port == port)?;
        match &found.target {
            ServiceTargetPort::Number(target) => Some(*target),
            ServiceTargetPort::Name(wanted) => pod.spec.ports.iter().find(|it| *it.name == **wanted).map(|it| it.port),
        }
    }
}

/// A running server. A token of a namespace reads the proxies of that namespace only; the way ends where its rights do.
pub(super) struct ServerProxies {
    target: ServerArgs,
    domain: String,
    trust_domain: String,
    /// The page `adsz`; `None`: this caller may not read it.
    connected: Option<Value>,
}

impl ServerProxies {
    pub(super) fn new(source: ExplainSource) -> Result<ServerProxies> {
        let target = source.target;
        let (connected, mesh): (Result<Value>, Result<Value>) = client::run(async {
            let server = PageClient::new(&target)?;
            let connected = server.page("/debug/adsz", "a list of connections").await;
            Ok((connected, server.page("/debug/mesh", "a mesh configuration").await))
        })?;
        let trust_domain = mesh.ok().and_then(|it| it["trustDomain"].as_str().map(str::to_owned));
        if let Err(error) = &connected {
            eprintln!("note: only the first proxy of the way is explained: {error:#}");
        }
        Ok(ServerProxies {
            target,
            domain: source.mesh.domain,
            trust_domain: trust_domain.unwrap_or_else(|| "cluster.local".to_owned()),
            connected: connected.ok(),
        })
    }

    fn named(&self, name: &str) -> Result<ProxyResources> {
        let PodName(pod) = name.parse()?;
        let connected = self
            .clients()
            .find(|it| it["metadata"]["NAME"] == *pod.name && it["metadata"]["NAMESPACE"] == *pod.namespace);
        self.resources(name, connected)
    }

    fn at(&self, ip: IpAddr) -> Result<Option<Arc<ProxyResources>>> {
        let ip = ip.to_string();
        let has_ip = |it: &&Value| {
            it["metadata"]["INSTANCE_IPS"].as_str().is_some_and(|ips| ips.split(',').any(|own| own == ip))
        };
        let Some(connected) = self.clients().find(has_ip) else { return Ok(None) };
        let text = |key: &str| connected["metadata"][key].as_str().unwrap_or_default();
        let name = format!("{}.{}", text("NAME"), text("NAMESPACE"));
        self.resources(&name, Some(connected)).map(|it| Some(Arc::new(it)))
    }

    fn clients(&self) -> impl Iterator<Item = &Value> {
        self.connected.iter().flat_map(|it| it["clients"].as_array().into_iter().flatten())
    }

    fn resources(&self, name: &str, connected: Option<&Value>) -> Result<ProxyResources> {
        let path = format!("/debug/config_dump?include_eds&proxyID={name}");
        let dump: Value = client::run(async { PageClient::new(&self.target)?.page(&path, "a config dump").await })?;
        let PodName(pod) = name.parse()?;
        let metadata = connected.map(|it| &it["metadata"]);
        let account = metadata.and_then(|it| it["SERVICE_ACCOUNT"].as_str());
        let ips = metadata.and_then(|it| it["INSTANCE_IPS"].as_str()).unwrap_or_default();
        let mut resources = ProxyResources::new(ExplainedProxy {
            name: name.to_owned(),
            address: ips.split(',').next().and_then(|ip| ip.parse().ok()),
            identity: account
                .map(|account| format!("spiffe://{}/ns/{}/sa/{account}", self.trust_domain, pod.namespace)),
            namespace: pod.namespace.to_string(),
            domain: self.domain.clone(),
        });
        resources.add_dump(&dump).with_context(|| format!("cannot read the config dump of {name}"))?;
        if resources.is_empty() {
            bail!("the server has no listeners for {name}");
        }
        Ok(resources)
    }
}
