//! The transport of a cluster's connections: mutual TLS of the mesh, TLS configured by a user, the PROXY protocol, plaintext.

use config::kinds::client_tls::{ClientTlsMode, ClientTlsSettings};
use config::kinds::destination_rule::{ProxyProtocol, ProxyProtocolVersion};
use model::{CertificateFiles, Mesh, MtlsMode, Placement, Port, Service, TlsMode};
use wire::any;
use wire::envoy::config::cluster::v3::cluster::TransportSocketMatch;
use wire::envoy::config::core::v3::{
    ProxyProtocolConfig, TransportSocket, UpstreamHttpProtocolOptions, proxy_protocol_config, transport_socket,
};
use wire::envoy::extensions::transport_sockets::proxy_protocol::v3::ProxyProtocolUpstreamTransport;
use wire::envoy::extensions::upstreams::http::v3::HttpProtocolOptions;
use wire::google::protobuf::Struct;

use super::policy::Draft;
use super::resolution;
use crate::proto::{proto_struct, text};
use crate::tls;

/// Client and server of one cluster, for its TLS settings.
pub(super) struct Peer<'a> {
    pub(super) mesh: &'a Mesh,
    pub(super) placement: &'a Placement,
    pub(super) service: &'a Service,
    /// For mutual TLS.
    pub(super) sni: String,
    /// Endpoints are unknown: the application chose the address.
    pub(super) original: bool,
    /// The rule has a workload selector.
    pub(super) selected: bool,
}

impl Peer<'_> {
    /// A host that is resolved per request has no known identity.
    fn identities(&self) -> Vec<String> {
        if self.service.is_dynamic() { Vec::new() } else { self.mesh.identities(self.service) }
    }
}

/// `automatic`: mutual TLS if the rule does not configure TLS.
pub(super) fn apply(draft: &mut Draft, peer: &Peer<'_>, wanted: Option<&ClientTlsSettings>, automatic: bool) {
    let files = peer.placement.proxy.metadata.client_certificate.as_deref().filter(|files| !files.chain.is_empty());
    match wanted {
        Some(tls) => apply_rule(draft, peer, tls, files),
        None if automatic => apply_automatic(draft, peer, files),
        None => {}
    }
}

fn apply_automatic(draft: &mut Draft, peer: &Peer<'_>, files: Option<&CertificateFiles>) {
    if let Some(files) = files {
        let own = ClientTlsSettings {
            subject_alt_names: peer.identities(),
            sni: peer.sni.clone(),
            ..file_tls_settings(files)
        };
        return originate(draft, peer, &own);
    }
    let socket = mutual(draft, peer, &ClientTlsSettings::default(), Expected::of_service(peer));
    if peer.original {
        draft.cluster.transport_socket = Some(socket);
    } else {
        draft.cluster.transport_socket_matches = matches(socket);
    }
}

/// A server outside the mesh need not trust the CA of the proxy's certificate files: rules for it apply as written.
fn apply_rule(draft: &mut Draft, peer: &Peer<'_>, tls: &ClientTlsSettings, files: Option<&CertificateFiles>) {
    match (tls.mode, files) {
        (ClientTlsMode::Disable, _) => {}
        (ClientTlsMode::Simple, _) => originate(draft, peer, tls),
        (ClientTlsMode::Mutual | ClientTlsMode::IstioMutual, Some(files)) if !peer.service.external => {
            let own = ClientTlsSettings {
                subject_alt_names: tls.subject_alt_names.clone(),
                sni: tls.sni.clone(),
                insecure_skip_verify: tls.insecure_skip_verify,
                ..file_tls_settings(files)
            };
            originate(draft, peer, &own);
        }
        (ClientTlsMode::Mutual, _) => originate(draft, peer, tls),
        (ClientTlsMode::IstioMutual, files) => {
            let expected = match files {
                Some(_) => Expected::of_cluster(draft, peer),
                None => Expected::of_service(peer),
            };
            draft.cluster.transport_socket = Some(mutual(draft, peer, tls, expected));
        }
    }
}

/// Automatic mutual TLS. If endpoints cannot be matched one by one, none of them may be without it.
pub(super) fn is_automatic(mesh: &Mesh, service: &Service, port: &Port, passthrough: bool) -> bool {
    if service.external || !mesh.config.enable_auto_mtls || mesh.namespace_mtls(&service.namespace) == MtlsMode::Disable
    {
        return false;
    }
    if !service.is_headless() && !passthrough {
        return true;
    }
    let endpoints = mesh.endpoints_at(service, port.number);
    !endpoints.is_empty() && endpoints.iter().all(|endpoint| endpoint.workload.tls_mode != TlsMode::Disabled)
}

pub(super) fn apply_proxy_protocol(draft: &mut Draft, wanted: ProxyProtocol) {
    let cluster = &mut draft.cluster;
    if cluster.transport_socket.is_none() && cluster.transport_socket_matches.is_empty() {
        cluster.transport_socket = Some(TransportSocket { name: "raw_buffer".into(), ..tls::plaintext() });
    }
    let matched = cluster.transport_socket_matches.iter_mut().map(|choice| &mut choice.transport_socket);
    for socket in std::iter::once(&mut cluster.transport_socket).chain(matched) {
        *socket = socket.take().map(|inner| with_proxy_protocol(inner, wanted.version));
    }
}

fn with_proxy_protocol(inner: TransportSocket, version: ProxyProtocolVersion) -> TransportSocket {
    let version = match version {
        ProxyProtocolVersion::V1 => proxy_protocol_config::Version::V1,
        ProxyProtocolVersion::V2 => proxy_protocol_config::Version::V2,
    };
    let config = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: version.into(), ..ProxyProtocolConfig::default() }),
        transport_socket: Some(inner),
        ..ProxyProtocolUpstreamTransport::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".into(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any::pack(&config))),
    }
}

/// SNI and identities of mesh mutual TLS where the rule does not set them.
struct Expected {
    sni: String,
    identities: Vec<String>,
}

impl Expected {
    fn of_service(peer: &Peer<'_>) -> Expected {
        Expected { sni: peer.sni.clone(), identities: peer.identities() }
    }

    /// As in istiod, for a server outside the mesh when the proxy has certificate files: any certificate of the mesh CA is accepted.
    fn of_cluster(draft: &Draft, peer: &Peer<'_>) -> Expected {
        let sni = if peer.service.is_dynamic() { String::new() } else { draft.cluster.name.clone() };
        Expected { sni, identities: Vec::new() }
    }
}

/// Mutual TLS of the mesh with the agent's certificate.
fn mutual(draft: &mut Draft, peer: &Peer<'_>, tls: &ClientTlsSettings, expected: Expected) -> TransportSocket {
    let sni = if tls.sni.is_empty() { expected.sni } else { tls.sni.clone() };
    let identities = if tls.subject_alt_names.is_empty() { expected.identities } else { tls.subject_alt_names.clone() };
    let alpn: &[&str] =
        if draft.is_http2() { &["istio-peer-exchange", "istio", "h2"] } else { &["istio-peer-exchange", "istio"] };
    if peer.service.is_dynamic() {
        set_automatic_names(draft, peer, tls);
    }
    tls::upstream(sni, &identities, alpn)
}

/// TLS configured by a user.
fn originate(draft: &mut Draft, peer: &Peer<'_>, tls: &ClientTlsSettings) {
    let secret = !tls.credential_name.is_empty() && !tls.credential_name.starts_with("configmap://");
    // A credential name in a rule for all sidecars would block those that may not read the Secret.
    if secret && !peer.placement.is_gateway() && !peer.selected {
        return;
    }
    set_automatic_names(draft, peer, tls);
    // SANs of the ServiceEntry apply if the rule has none.
    let declared = (!peer.service.is_kubernetes() && tls.subject_alt_names.is_empty())
        .then(|| ClientTlsSettings { subject_alt_names: peer.identities(), ..tls.clone() });
    let tls = declared.as_ref().unwrap_or(tls);
    let alpn: &[&str] = if draft.is_http2() { &["h2"] } else { &[] };
    if let Some(socket) = tls::origination_socket(tls, alpn, peer.mesh.config.tls_defaults.as_ref()) {
        draft.cluster.transport_socket = Some(socket);
    }
}

/// Without an SNI the request's host is used, and without SANs the certificate must match it.
fn set_automatic_names(draft: &mut Draft, peer: &Peer<'_>, tls: &ClientTlsSettings) {
    let dynamic = peer.service.is_dynamic();
    let auto_sni = tls.sni.is_empty();
    let verified = tls.insecure_skip_verify != Some(true);
    // With dynamic DNS the certificate must always match the request's host.
    let auto_san_validation = verified && (dynamic || (auto_sni && tls.subject_alt_names.is_empty()));
    if dynamic && !(auto_sni && auto_san_validation) {
        resolution::allow_unverified_names(&mut draft.cluster, peer.service);
    }
    if auto_sni || auto_san_validation {
        let options = draft.options.get_or_insert_with(HttpProtocolOptions::default);
        options.upstream_http_protocol_options =
            Some(UpstreamHttpProtocolOptions { auto_sni, auto_san_validation, ..Default::default() });
    }
}

fn file_tls_settings(files: &CertificateFiles) -> ClientTlsSettings {
    ClientTlsSettings {
        mode: ClientTlsMode::Mutual,
        client_certificate: files.chain.clone(),
        private_key: files.key.clone(),
        ca_certificates: files.root.clone(),
        ..ClientTlsSettings::default()
    }
}

/// Endpoints carry a label that says whether they accept mutual TLS.
fn matches(socket: TransportSocket) -> Vec<TransportSocketMatch> {
    vec![
        TransportSocketMatch {
            name: "tlsMode-istio".into(),
            r#match: Some(proto_struct([("tlsMode", text("istio"))])),
            transport_socket: Some(socket),
        },
        TransportSocketMatch {
            name: "tlsMode-disabled".into(),
            r#match: Some(Struct::default()),
            transport_socket: Some(tls::plaintext()),
        },
    ]
}

/// TLS configured by a user for servers outside the mesh.
pub(super) fn is_user_tls(tls: Option<&ClientTlsSettings>) -> bool {
    tls.is_some_and(|tls| matches!(tls.mode, ClientTlsMode::Simple | ClientTlsMode::Mutual))
}
