//! The resources of each class of proxies: translated once, versioned by content hash, with the sequence of each change. No sockets, and no
//! xDS requests, nonces or ACKs.

mod admission;
mod class_limits;
mod cluster_patches;
mod dependencies;
mod effects;
mod engine;
mod gateway;
mod hold;
mod inbound_templates;
mod isolation;
mod key_fingerprint;
mod layer;
mod layer_cache;
mod layer_caches;
mod layer_kinds;
mod member;
mod node;
mod notifications;
mod outbound_layer;
mod patch_reach;
mod plan;
mod provenance;
mod recording;
mod render;
mod resource_cache;
mod routes;
mod scope_change;
mod secrets;
mod sorted_list;
mod table;
mod version;
mod view;
mod views;

pub use class_limits::{ClassClient, ClassLimits};
pub use hold::{ClassId, HELD_KINDS, Hold, Holds, Instead, ProxySet, Repair, ResourceKey};
pub use member::{class_number, served_proxy};
pub use node::node_info;
pub use notifications::PendingNotifications;
pub use patch_reach::PatchReach;
pub use plan::{Plan, PlannedChange, PlannedGroup};
pub use recording::{
    ChangedObject, ClassMove, LayerKey, LayerSnapshot, PushCause, PushRecord, RecordedChange, Records,
};
pub use render::{RenderedResource, render, render_resource};
pub use secrets::SecretAuthorizer;
pub use views::{HoldInForce, NackListener, NackedResource, Views};
