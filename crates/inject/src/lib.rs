//! Sidecar injection: what istiod's injector makes of a pod. Pure: a review and the objects of a mesh in, a patch out. The server part, and
//! who may call it, are in `server`.

mod annotation;
mod data;
mod decision;
mod fault;
mod functions;
mod image;
mod injection;
mod injector_config;
mod json_patch;
mod merge;
mod native;
mod openshift;
mod order;
mod overlay;
mod overrides;
mod owner;
mod path;
mod pod;
mod probes;
mod prometheus;
mod proxy_config;
mod quantity;
mod review;
mod schema;
mod status;
mod template;
mod values;
mod webhook_configuration;
mod workloads;
mod yaml;

pub use decision::Reason;
pub use fault::Fault;
pub use injection::{ControlPlane, Injection, InjectionOutcome, Injector, Request};
pub use injector_config::{ConfigError, InjectorConfig};
pub use native::NativeSidecars;
pub use owner::OwnerWorkload;
pub use review::{Review, refused};
pub use template::ParseError;
pub use values::Values;
pub use webhook_configuration::{Selection, WebhookConfiguration};
pub use workloads::{InjectedObject, PodTemplate};
