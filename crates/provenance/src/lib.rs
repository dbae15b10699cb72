//! Where resources come from: the objects and fields that each part of a resource is made from, why they win over others, and what becomes of
//! an object. Pure, computed on demand: a field is a cause if the resource changes without it (see ARCHITECTURE.md). Knows no streams and no
//! pages.

mod experiment;
mod field;
mod mesh_setting;
mod object;
mod parts;
mod proxy;
mod rejection;
mod resource;
mod search;

pub use object::{
    ObjectExplanation, ObjectHolder, ObjectNote, ObjectReach, ReachState, ReachedProxy, explain_object, object_id,
};
pub use proxy::{
    Decision, Loser, ProxyExplanation, ProxyResource, TypeSummary, explain_proxy, explain_without_mesh, object_of,
};
pub use rejection::{BlamedObject, BlamedResource, CULPRIT_KINDS, blame, culprit, repaired};
pub use resource::{
    Cause, CausingField, FieldLocator, PartOrigin, ResourceExplanation, Role, explain_resource, resource_type,
};
