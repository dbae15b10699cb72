//! The mesh as facts: services, endpoints, who sees whom, which policy holds where. Pure: no Envoy, no Kubernetes client, no clock, no IO.

mod authn;
mod class;
mod delta;
mod endpoint;
mod environment;
mod mesh;
mod metadata;
mod placement;
mod protocol;
mod proxy;
mod scope;
mod service;
mod visibility;
mod workload;

pub use authn::{MtlsMode, PortModes};
pub use class::{Class, InboundKey, ListenerKey, OutboundKey};
pub use delta::{Delta, ServiceChange};
pub use endpoint::{Endpoint, Health, ServiceEndpoints};
pub use environment::Environment;
pub use mesh::Mesh;
pub use metadata::{Interception, Metadata};
pub use placement::{InboundTarget, Placement};
pub use protocol::Protocol;
pub use proxy::{Extension, NodeInfo, Proxy, ProxyError, ProxyKind};
pub use scope::{Capture, EgressListener, IngressListener, ListenPort, OutboundPolicy, Scope, ScopeKey};
pub use service::{Port, Registry, Resolution, Service, TargetPort};
pub use visibility::Visibility;
pub use workload::{Identity, Workload};
