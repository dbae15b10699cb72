//! The service of a telemetry provider as the target of gRPC or HTTP calls.

use config::mesh::{HeaderValue as Written, ProviderHeader};
use model::Mesh;
use wire::envoy::config::core::v3::{
    GrpcService, HeaderValue, HeaderValueOption, HttpService, HttpUri,
    grpc_service::{EnvoyGrpc, TargetSpecifier},
    header_value_option::HeaderAppendAction,
    http_uri::HttpUpstreamType,
};
use wire::google::protobuf::Duration;

use crate::names::ClusterName;

pub(super) struct Collector {
    pub(super) host: String,
    pub(super) cluster: String,
}

impl Collector {
    /// `None`: the mesh does not have the service.
    pub(super) fn new(mesh: &Mesh, service: &str, port: u32) -> Option<Self> {
        let host = mesh.provider_host(service)?;
        let cluster = ClusterName::outbound(u16::try_from(port).ok()?, host).to_string();
        Some(Self { host: host.to_string(), cluster })
    }

    pub(super) fn grpc(self) -> GrpcService {
        let target = EnvoyGrpc { cluster_name: self.cluster, authority: self.host, ..EnvoyGrpc::default() };
        GrpcService { target_specifier: Some(TargetSpecifier::EnvoyGrpc(target)), ..GrpcService::default() }
    }

    pub(super) fn http(&self, uri: String, timeout: Option<Duration>, headers: Vec<HeaderValueOption>) -> HttpService {
        HttpService {
            http_uri: Some(HttpUri {
                uri,
                http_upstream_type: Some(HttpUpstreamType::Cluster(self.cluster.clone())),
                timeout,
            }),
            request_headers_to_add: headers,
            ..HttpService::default()
        }
    }

    /// Host and path without a scheme, cleaned like istiod's.
    pub(super) fn address(&self, path: &str) -> String {
        let mut parts = Vec::new();
        for part in path.split('/') {
            match part {
                "" | "." => {}
                ".." => drop(parts.pop()),
                part => parts.push(percent_encode(part)),
            }
        }
        let mut address = std::iter::once(self.host.clone()).chain(parts).collect::<Vec<_>>().join("/");
        if path.ends_with('/') {
            address.push('/');
        }
        address
    }
}

/// Percent-encodes what would end a path.
fn percent_encode(part: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%".contains(&byte);
    part.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

pub(super) fn headers(mesh: &Mesh, written: &[ProviderHeader]) -> Vec<HeaderValueOption> {
    let header = |header| HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..HeaderValueOption::default()
    };
    metadata(mesh, written).into_iter().map(header).collect()
}

/// An unset environment variable of the control plane gives an empty value.
pub(super) fn metadata(mesh: &Mesh, written: &[ProviderHeader]) -> Vec<HeaderValue> {
    let value = |header: &ProviderHeader| match &header.value {
        Some(Written::Literal(text)) => text.clone(),
        Some(Written::EnvName(name)) => mesh.env.variables.get(name).unwrap_or_default().to_owned(),
        None => String::new(),
    };
    let header = |header: &ProviderHeader| HeaderValue {
        key: header.name.clone(),
        value: value(header),
        ..HeaderValue::default()
    };
    written.iter().map(header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_clean_path_and_no_scheme() {
        let collector = Collector { host: "spans.shop".into(), cluster: String::new() };
        for (path, want) in [
            ("/v1/traces", "spans.shop/v1/traces"),
            ("v1//traces/", "spans.shop/v1/traces/"),
            ("", "spans.shop"),
            ("/", "spans.shop/"),
            ("/a/../b?c=d e", "spans.shop/b%3Fc=d%20e"),
        ] {
            assert_eq!(collector.address(path), want, "{path}");
        }
    }
}
