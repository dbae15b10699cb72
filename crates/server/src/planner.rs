//! What objects would change, computed beside the mesh in force: for `meltemi plan`, and for the warnings of the validation webhook. Nothing of a
//! request is put in force. What is shown of a plan is in the crate `admin`.

mod applied;

use std::collections::BTreeMap;
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use config::object::{AnyObject, Parsed};
use config::store::{Snapshot, Store, StoreOptions, Update};
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use views::{Plan, Views};

use crate::folder;
use crate::pipeline::RevisionMeshConfig;
use crate::settings::MeshSettings;

pub struct Planner {
    views: Arc<Views>,
    mesh: MeshSettings,
    permits: Arc<Semaphore>,
}

/// Plans that are computed at a time: each takes a processor from pushes, and the memory of what it changes.
const AT_A_TIME: usize = 1;

/// What a plan would do with objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanOperation {
    Apply,
    Delete,
}

/// A plan, and the objects that it is of.
pub struct PlannedObjects {
    /// Sorted.
    pub objects: BTreeMap<ObjectId, ObjectEffect>,
    /// Of the texts of these objects.
    pub diagnostics: Vec<Diagnostic>,
    pub plan: Plan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectEffect {
    Created,
    Replaced,
    /// It is in force already.
    Unchanged,
    Deleted,
    /// There is nothing to delete.
    Absent,
    /// It is invalid, and changes nothing.
    Rejected,
}

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("nothing is loaded yet")]
    NotLoaded,
    #[error("there are no objects in the request")]
    Empty,
    #[error("the mesh config cannot be read")]
    MeshConfig(#[source] anyhow::Error),
}

/// The permit of one plan.
pub struct PlanPermit {
    _permit: OwnedSemaphorePermit,
}

impl Planner {
    pub fn new(views: Arc<Views>, mesh: MeshSettings) -> Planner {
        Planner { views, mesh, permits: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// `None`: another plan is being computed.
    pub fn permit(&self) -> Option<PlanPermit> {
        self.permits.clone().try_acquire_owned().ok().map(|permit| PlanPermit { _permit: permit })
    }

    /// Blocks as long as a refresh of the same change would take.
    pub fn plan(
        &self,
        _permit: &PlanPermit,
        parsed: Parsed,
        operation: PlanOperation,
    ) -> Result<PlannedObjects, PlanError> {
        let Parsed { objects, diagnostics, rejected, .. } = parsed;
        if objects.is_empty() && rejected.is_empty() && diagnostics.is_empty() {
            return Err(PlanError::Empty);
        }
        let mut effects: BTreeMap<ObjectId, ObjectEffect> =
            rejected.into_iter().map(|id| (id, ObjectEffect::Rejected)).collect();
        let mut error = None;
        let plan = self.views.plan(|current| {
            let updates = match operation {
                PlanOperation::Apply => applied_updates(current, objects, &mut effects),
                PlanOperation::Delete => {
                    effects.extend(objects.iter().map(|object| (object.id(), ObjectEffect::Deleted)));
                    deleted_updates(current, &mut effects)
                }
            };
            self.next(current, updates).unwrap_or_else(|why| {
                error = Some(why);
                Arc::new(current.clone())
            })
        });
        match error {
            Some(why) => Err(PlanError::MeshConfig(why)),
            None => Ok(PlannedObjects { objects: effects, diagnostics, plan: plan.ok_or(PlanError::NotLoaded)? }),
        }
    }

    fn next(&self, current: &Snapshot, updates: Vec<Update>) -> anyhow::Result<Arc<Snapshot>> {
        let mesh_config = folder::given_mesh_config(&self.mesh)?;
        let options = StoreOptions { pod_namespace: self.mesh.pod_namespace.clone(), mesh_config };
        Ok(Store::from_snapshot(options, current).apply(RevisionMeshConfig::of(&self.mesh).apply(updates)))
    }
}

fn applied_updates(
    current: &Snapshot,
    objects: Vec<AnyObject>,
    effects: &mut BTreeMap<ObjectId, ObjectEffect>,
) -> Vec<Update> {
    let mut updates = Vec::new();
    for object in objects {
        let id = object.id();
        let live = current.find(&id);
        let object = applied::as_applied(object, live.as_ref());
        let effect = match &live {
            None => ObjectEffect::Created,
            Some(live) if *live == object => ObjectEffect::Unchanged,
            Some(_) => ObjectEffect::Replaced,
        };
        effects.insert(id, effect);
        updates.push(Update::Put(object));
    }
    updates
}

/// Invalid objects are deleted too: only their names count.
fn deleted_updates(current: &Snapshot, effects: &mut BTreeMap<ObjectId, ObjectEffect>) -> Vec<Update> {
    for (id, effect) in effects.iter_mut() {
        *effect = if current.find(id).is_some() { ObjectEffect::Deleted } else { ObjectEffect::Absent };
    }
    effects.keys().cloned().map(Update::Delete).collect()
}
