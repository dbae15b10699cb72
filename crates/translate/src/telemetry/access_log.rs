//! Access logs of requests, of connections, and of listeners (connections that matched no filter chain).

use config::mesh::{AccessLogEncoding, FileAccessLogProvider, LogFormat, ProviderKind};
use model::{AccessLogProvider, AccessLogs, Mesh, Placement};
use wire::any::{self, Packable};
use wire::envoy::config::accesslog::v3::{
    AccessLog, AccessLogFilter, AndFilter, ExtensionFilter, ResponseFlagFilter, access_log::ConfigType,
    access_log_filter::FilterSpecifier, extension_filter,
};
use wire::envoy::config::core::v3::SubstitutionFormatString;
use wire::envoy::extensions::access_loggers::file::v3::{FileAccessLog, file_access_log::AccessLogFormat};
use wire::envoy::extensions::access_loggers::filters::cel::v3::ExpressionFilter;

use super::{grpc_log, log_format, side};
use crate::filter::Direction;

/// The built-in provider; its format is that of the mesh config.
const BUILT_IN: &str = "envoy";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogScope {
    Requests,
    Connections,
    /// Connections that ended before a filter chain matched.
    Listener,
}

pub(crate) fn logs(mesh: &Mesh, placement: &Placement, direction: Direction, scope: LogScope) -> Vec<AccessLog> {
    if scope == LogScope::Listener && mesh.config.disable_envoy_listener_log {
        return Vec::new();
    }
    match &side(placement, direction).logs {
        AccessLogs::Mesh => of_mesh(mesh, scope),
        AccessLogs::To(providers) => providers.iter().filter_map(|to| of_provider(mesh, to, scope)).collect(),
    }
}

pub(super) fn log<M: Packable>(name: &str, config: &M) -> AccessLog {
    AccessLog { name: name.to_owned(), filter: None, config_type: Some(ConfigType::TypedConfig(any::pack(config))) }
}

/// By the mesh config's own fields.
fn of_mesh(mesh: &Mesh, scope: LogScope) -> Vec<AccessLog> {
    let path = &mesh.config.access_log_file;
    let file = (!path.is_empty()).then(|| file(path, Some(mesh_format(mesh))));
    let service = mesh.config.enable_envoy_access_log_service.then(|| grpc_log::of_mesh(scope));
    let limited = |log| AccessLog { filter: all(no_route(scope).into_iter().collect()), ..log };
    file.into_iter().chain(service).map(limited).collect()
}

fn of_provider(mesh: &Mesh, to: &AccessLogProvider, scope: LogScope) -> Option<AccessLog> {
    let log = match mesh.extension_provider(&to.provider)? {
        ProviderKind::EnvoyFileAccessLog(provider) => to_file(mesh, &to.provider, provider),
        ProviderKind::EnvoyHttpAls(provider) => grpc_log::http(mesh, provider)?,
        ProviderKind::EnvoyTcpAls(provider) => grpc_log::tcp(mesh, provider)?,
        ProviderKind::EnvoyOtelAls(provider) => grpc_log::open_telemetry(mesh, provider)?,
        _ => return None,
    };
    let filters = no_route(scope).into_iter().chain(to.filter.as_deref().map(expression)).collect();
    Some(AccessLog { filter: all(filters), ..log })
}

fn to_file(mesh: &Mesh, name: &str, provider: &FileAccessLogProvider) -> AccessLog {
    if name == BUILT_IN && provider.log_format.is_none() && !provider.omit_empty_values {
        return file(&provider.path, Some(mesh_format(mesh)));
    }
    let format = match &provider.log_format {
        None => Some(log_format::text("")),
        Some(LogFormat::Text(text)) => Some(log_format::text(text)),
        Some(LogFormat::Labels(labels)) => Some(log_format::json(labels)),
        // Envoy's default format.
        Some(LogFormat::Unset) => None,
    };
    let omit_empty_values = provider.omit_empty_values;
    let path = if provider.path.is_empty() { "/dev/stdout" } else { &provider.path };
    file(path, format.map(|format| SubstitutionFormatString { omit_empty_values, ..format }))
}

fn file(path: &str, format: Option<SubstitutionFormatString>) -> AccessLog {
    let access_log_format = format.map(AccessLogFormat::LogFormat);
    log("envoy.access_loggers.file", &FileAccessLog { path: path.to_owned(), access_log_format })
}

fn mesh_format(mesh: &Mesh) -> SubstitutionFormatString {
    let written = &mesh.config.access_log_format;
    match mesh.config.access_log_encoding {
        AccessLogEncoding::Text => log_format::text(written),
        AccessLogEncoding::Json => log_format::json_text(written),
    }
}

/// Connections that matched a chain are in that chain's log.
fn no_route(scope: LogScope) -> Option<AccessLogFilter> {
    (scope == LogScope::Listener).then(|| AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::ResponseFlagFilter(ResponseFlagFilter { flags: vec!["NR".into()] })),
    })
}

fn expression(expression: &str) -> AccessLogFilter {
    let cel = ExpressionFilter { expression: expression.to_owned(), ..ExpressionFilter::default() };
    let filter = ExtensionFilter {
        name: "envoy.access_loggers.extension_filters.cel".into(),
        config_type: Some(extension_filter::ConfigType::TypedConfig(any::pack(&cel))),
    };
    AccessLogFilter { filter_specifier: Some(FilterSpecifier::ExtensionFilter(filter)) }
}

fn all(mut filters: Vec<AccessLogFilter>) -> Option<AccessLogFilter> {
    match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(AccessLogFilter { filter_specifier: Some(FilterSpecifier::AndFilter(AndFilter { filters })) }),
    }
}
