//! The mesh model: services, endpoints, visibility and the policies that apply to each workload. Pure: no Envoy, no Kubernetes client, no clock, no IO.

mod address_allocation;
mod analysis;
mod attachment;
mod authn;
mod class;
mod cluster_local;
mod credential;
mod delta;
mod destination;
mod discovery_selectors;
mod endpoint;
mod environment;
mod gateway;
mod identity;
mod ingress;
mod input;
mod mesh;
mod metadata;
mod metadata_value;
mod network;
mod patch;
mod percent;
mod placement;
mod plugin;
mod policy;
mod precedence;
mod protocol;
mod provider;
mod proxy;
mod proxy_settings;
mod ranking;
mod release;
mod scope;
mod scopes;
mod service;
mod service_entry;
mod service_entry_endpoint;
mod telemetry;
mod topology;
mod virtual_service;
mod visibility;
mod workload;

pub use address_allocation::status_address_updates;
pub use authn::{MtlsMode, PortModes};
pub use class::{ClassKeys, InboundKey, ListenerKey, OutboundKey};
pub use credential::{
    Credential, CredentialDenied, CredentialMissing, CredentialName, CredentialReader, InvalidCredentialName,
    ResolvedCredential,
};
pub use delta::Delta;
pub use destination::{LocalityPreference, MergedDestinationRule, is_passthrough, outlier_detection};
pub use endpoint::{Endpoint, EndpointAddress, Health, Origin, ServiceEndpoints};
pub use environment::{AddressRanges, Environment, Variables};
pub use gateway::{GatewayKey, GatewayPort, GatewayServer, MergedGateway, ServerHost, ServerMode};
pub use identity::{Assurance, UnauthorizedIdentity, WorkloadMismatch};
pub use input::Input;
pub use mesh::Mesh;
pub use metadata::{CertificateFiles, Interception, Metadata, ProxyConfigCache};
pub use metadata_value::MetadataValue;
pub use network::{NetworkGateway, NetworkGateways, Networks};
pub use patch::{Patch, PatchId, PatchSet, Patches};
pub use percent::Percentage;
pub use placement::{InboundTarget, Placement, ProxyFacts};
pub use plugin::{Plugin, PluginSide, PluginTraffic, Plugins};
pub use policy::{
    Authorization, AuthorizationRule, Authorizer, CustomAuthorization, OperationAttribute, Policies, SourceAttribute,
    Term, TokenRule, WorkloadPolicy,
};
pub use precedence::Precedence;
pub use protocol::Protocol;
pub use proxy::{Extension, NodeInfo, Proxy, ProxyError, ProxyKind};
pub use proxy_settings::{KeyAcceleration, KeyHardware, ProxySettings, TracingSettings};
pub use release::Release;
pub use scope::{Capture, EgressListener, IngressListener, ListenPort, OutboundPolicy, Scope, ScopeKey};
pub use service::{ConnectStrategy, Distribution, Port, Range, Registry, Resolution, Service, TargetPort};
pub use telemetry::{
    AccessLogProvider, AccessLogs, MetricOverride, ProviderMetrics, Side, TracingTarget, WorkloadTelemetry,
    WorkloadTracing,
};
pub use topology::GatewayTopology;
pub use virtual_service::{MESH, PathPrefix, ResolvedVirtualService, VirtualServices, destination_port};
pub use visibility::Visibility;
pub use workload::{TlsMode, Workload, WorkloadIdentity};
