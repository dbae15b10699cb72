//! The mesh as facts: services, endpoints, who sees whom, which policy holds where. Pure: no Envoy, no Kubernetes client, no clock, no IO.

mod authn;
mod class;
mod delta;
mod destination;
mod endpoint;
mod entry;
mod entry_endpoint;
mod environment;
mod mesh;
mod metadata;
mod placement;
mod protocol;
mod proxy;
mod scope;
mod scopes;
mod service;
mod virtual_service;
mod visibility;
mod workload;

pub use authn::{MtlsMode, PortModes};
pub use class::{Class, InboundKey, ListenerKey, OutboundKey};
pub use delta::{Delta, ServiceChange};
pub use destination::{Destination, Locality, is_passthrough, outlier_detection};
pub use endpoint::{Address, Endpoint, Health, Origin, ServiceEndpoints};
pub use environment::Environment;
pub use mesh::Mesh;
pub use metadata::{CertificateFiles, Interception, Metadata};
pub use placement::{InboundTarget, Placement};
pub use protocol::Protocol;
pub use proxy::{Extension, NodeInfo, Proxy, ProxyError, ProxyKind};
pub use scope::{Capture, EgressListener, IngressListener, ListenPort, OutboundPolicy, Scope, ScopeKey};
pub use service::{Distribution, Port, Range, Registry, Resolution, Service, TargetPort};
pub use virtual_service::{MESH, VirtualService, VirtualServices, destination_port};
pub use visibility::Visibility;
pub use workload::{Identity, Workload};
