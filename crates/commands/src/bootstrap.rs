//! `meltemi bootstrap`: the bootstrap that connects an Envoy to a server. Certificates are served by the agent, or by the server (`server_secrets`).

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use config::meta::{Meta, Object};
use model::NodeInfo;
use serde_json::{Map, Value, json};

use super::folder::{self, PodName};
use super::{CommandOutcome, client, print_document};
use server::settings::ListenAddress;
use settings::args::{BootstrapArgs, BootstrapCommand, Env, MeshArgs, SdsFrom};
use settings::mesh_settings;

mod instance;
mod plaintext;
mod server_secrets;

pub(super) use instance::with_server;

pub fn run(args: BootstrapCommand, env: &Env) -> Result<CommandOutcome> {
    let BootstrapCommand { bootstrap, .. } = args;
    let (output, secure) = (bootstrap.output, bootstrap.secure || args.sds.is_some());
    let bootstrap = client::run(with_server(bootstrap, secure))?;
    let folder = bootstrap.config.clone().filter(|_| !secure && bootstrap.sds_socket.is_none());
    let mesh = mesh_args(&bootstrap);
    let document = with_secrets(BootstrapCommand { bootstrap, ..args }, env)?;
    if let Some(folder) = folder
        && let Some(warning) = plaintext::warning(&folder, mesh, &document["node"], env)?
    {
        eprintln!("warning: {warning}");
    }
    print_document(&document, output);
    Ok(CommandOutcome::Done)
}

fn with_secrets(args: BootstrapCommand, env: &Env) -> Result<Value> {
    let BootstrapCommand { bootstrap, sds, root, token, token_secret } = args;
    let (Some(SdsFrom::Server), Some(root), Some(token)) = (sds, root, token) else { return document(bootstrap, env) };
    let secrets = server_secrets::ServerSecrets { root, token, followed_by: token_secret };
    secrets.write()?;
    let name = bootstrap.server_name.clone();
    let server = server_of(&bootstrap)?;
    let mut document = document(BootstrapArgs { secure: true, ..bootstrap }, env)?;
    secrets.add_to(&mut document, name.as_deref().unwrap_or(&server.host));
    Ok(document)
}

pub(super) fn document(args: BootstrapArgs, env: &Env) -> Result<Value> {
    let server = server_of(&args)?;
    let admin = if args.admin.is_empty() { None } else { Some(required_address("--admin", &args.admin)?) };
    let agent = match &args.sds_socket {
        Some(path) => json!({"pipe": {"path": path}}),
        None => socket_address(&server),
    };
    let sotw = args.sotw;
    let mut xds = cluster("xds-grpc", &socket_address(&server));
    if args.secure {
        xds["transport_socket"] = mutual_tls(args.server_name.as_deref().unwrap_or(&server.host));
    }
    let node = node(args, env)?;
    let mut document = json!({
        "node": node_document(&node),
        "dynamic_resources": {
            "ads_config": {
                "api_type": if sotw { "GRPC" } else { "DELTA_GRPC" },
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc"}}],
            },
            "cds_config": over_ads(),
            "lds_config": over_ads(),
        },
        "static_resources": {"clusters": [
            xds,
            cluster("sds-grpc", &agent),
        ]},
        // Routes of users hold regular expressions that are longer than Envoy's own limit of 100 steps.
        "layered_runtime": {"layers": [
            {"name": "static", "static_layer": {"re2.max_program_size.error_level": 32768}},
            {"name": "admin", "admin_layer": {}},
        ]},
    });
    if let Some(admin) = admin {
        document["admin"] = json!({"address": socket_address(&admin)});
    }
    Ok(document)
}

/// The node of the proxy: from the Pod where there is one, overridden by flags.
fn node(args: BootstrapArgs, env: &Env) -> Result<NodeInfo> {
    let name: PodName = args.proxy.parse()?;
    let mesh = mesh_settings(mesh_args(&args), &env.mesh);
    let mut pod = match &args.config {
        Some(dir) => (**folder::pod(&server::load_folder(dir, &mesh)?.store.snapshot(), &name)?).clone(),
        None => Object {
            meta: Meta { name: name.0.name, namespace: name.0.namespace, ..Meta::default() },
            spec: Default::default(),
        },
    };
    if let Some(ip) = args.ip {
        pod.spec.ips = [ip].into();
    }
    if pod.spec.ips.is_empty() {
        bail!(
            "the proxy {} has no address; say it with --ip, or name a folder that has the Pod with --config",
            args.proxy
        );
    }
    if let Some(account) = args.service_account {
        pod.spec.service_account = account.into();
    } else if pod.spec.service_account.is_empty() {
        pod.spec.service_account = "default".into();
    }
    for (key, value) in args.labels {
        pod.meta.labels.insert(&key, &value);
    }
    let kind = folder::proxy_kind(args.proxy_type, &pod.meta);
    let mut node = model::Proxy::node_of_pod(&pod, kind, &mesh.environment());
    let metadata = node.metadata.as_object_mut().context("node metadata is a map")?;
    for (key, text) in args.metadata {
        let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        metadata.insert(key, value);
    }
    if let Some(locality) = args.locality {
        node.locality = locality.parse()?;
    }
    Ok(node)
}

fn mesh_args(args: &BootstrapArgs) -> MeshArgs {
    let (domain, cluster_id) = (args.domain.clone(), args.cluster_id.clone());
    MeshArgs { mesh_config: None, domain, cluster_id, derive_endpoints: false }
}

fn node_document(node: &NodeInfo) -> Value {
    let mut document = json!({"id": node.id, "cluster": node.cluster, "metadata": node.metadata});
    if !node.locality.is_empty() {
        let mut locality = Map::new();
        for (key, part) in
            [("region", &node.locality.region), ("zone", &node.locality.zone), ("sub_zone", &node.locality.subzone)]
        {
            if !part.is_empty() {
                locality.insert(key.to_owned(), Value::from(part.as_ref()));
            }
        }
        document["locality"] = Value::Object(locality);
    }
    document
}

fn server_of(args: &BootstrapArgs) -> Result<ListenAddress> {
    required_address("--server", args.server.as_deref().unwrap_or_default())
}

fn required_address(flag: &str, text: &str) -> Result<ListenAddress> {
    let address: ListenAddress = text.parse().with_context(|| format!("{flag} {text:?} is not an address"))?;
    if address.host.is_empty() {
        bail!("{flag} {text:?} names no host; write it like 127.0.0.1:{}", address.port);
    }
    Ok(address)
}

fn socket_address(address: &ListenAddress) -> Value {
    json!({"socket_address": {"address": address.host, "port_value": address.port}})
}

/// Without a first response there is nothing to serve: Envoy waits without a timeout.
fn over_ads() -> Value {
    json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"})
}

/// A gRPC upstream. Keepalives detect a server that is gone without a FIN.
fn cluster(name: &str, address: &Value) -> Value {
    let host = address["socket_address"]["address"].as_str();
    let discovery = if host.is_some_and(|host| host.parse::<IpAddr>().is_err()) { "STRICT_DNS" } else { "STATIC" };
    json!({
        "name": name,
        "type": discovery,
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {
                    "http2_protocol_options": {"connection_keepalive": {"interval": "30s", "timeout": "10s"}},
                },
            },
        },
    })
}

/// The workload's own certificate, and a server certificate with this name under the roots of the mesh.
fn mutual_tls(name: &str) -> Value {
    let secret = |name: &str| {
        json!({"name": name, "sds_config": {
            "resource_api_version": "V3",
            "initial_fetch_timeout": "0s",
            "api_config_source": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "sds-grpc"}}],
            },
        }})
    };
    let kind = if name.parse::<IpAddr>().is_ok() { "IP_ADDRESS" } else { "DNS" };
    json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "sni": name,
            "common_tls_context": {
                "alpn_protocols": ["h2"],
                "tls_certificate_sds_secret_configs": [secret("default")],
                "combined_validation_context": {
                    "default_validation_context": {
                        "match_typed_subject_alt_names": [{"san_type": kind, "matcher": {"exact": name}}],
                    },
                    "validation_context_sds_secret_config": secret("ROOTCA"),
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::args::{self, Command};

    pub(super) fn bootstrap(flags: &[&str]) -> Result<Value> {
        let words = ["meltemi", "bootstrap"].iter().chain(flags).map(std::ffi::OsString::from);
        let Command::Bootstrap(args) = args::parse(words).unwrap().0.command else { panic!("not bootstrap") };
        with_secrets(*args, &Env::default())
    }

    const GOLDEN: &str = include_str!("bootstrap/golden.yaml");

    #[test]
    fn golden() {
        let document = bootstrap(&[
            "--proxy=cart-1.shop",
            "--server=127.0.0.1:15010",
            "--ip=10.0.0.7",
            "--label=app=cart",
            "--service-account=cart",
            "--locality=r1/z1",
            "--metadata=INTERCEPTION_MODE=NONE",
            "--metadata=PROXY_CONFIG={\"concurrency\": 2}",
            "--sds-socket=./var/run/secrets/workload-spiffe-uds/socket",
        ])
        .unwrap();
        assert_eq!(crate::yaml::document(&document), GOLDEN);
    }

    #[test]
    fn a_server_name_is_resolved_and_serves_secrets_too() {
        let document =
            bootstrap(&["--proxy=a.b", "--server=istiod.istio-system.svc:15012", "--ip=::1", "--sotw", "--admin="])
                .unwrap();
        let clusters = &document["static_resources"]["clusters"];
        for index in 0..2 {
            assert_eq!(clusters[index]["type"], "STRICT_DNS");
            let endpoint = &clusters[index]["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"];
            assert_eq!(endpoint["address"]["socket_address"]["port_value"], 15012);
        }
        assert_eq!(document["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
        assert_eq!(document.get("admin"), None);
        assert_eq!(document["node"]["id"], "sidecar~::1~a.b~b.svc.cluster.local");
    }

    #[test]
    fn missing_values_are_named() {
        let error = |flags: &[&str]| format!("{:#}", bootstrap(flags).unwrap_err());
        assert!(error(&["--proxy=a.b", "--server=h:1"]).contains("--ip"));
        assert!(error(&["--proxy=a", "--server=h:1", "--ip=::1"]).contains("POD.NAMESPACE"));
        assert!(error(&["--proxy=a.b", "--server=h", "--ip=::1"]).contains("--server"));
        assert!(error(&["--proxy=a.b", "--server=:15010", "--ip=::1"]).contains("names no host"));
    }
}
