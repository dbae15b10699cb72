//! One resource of one proxy, translated again for a mesh that lacks something. What it lacks is a cause of what changes.

use std::cell::Cell;
use std::sync::Arc;

use config::diagnostic::ObjectId;
use config::mesh::MeshConfig;
use config::object::AnyObject;
use config::store::Snapshot;
use model::{Mesh, Proxy};
use views::{RenderedResource, render_resource};
use wire::json::to_value;
use xds::TypeUrl;

use crate::parts::{Part, missing, parts};

/// Each step of the mesh with one translation costs about a millisecond in a mesh of a thousand services: an explanation ends in seconds.
const MOST_TRIALS: usize = 2_000;

pub(crate) struct Experiment<'a> {
    mesh: &'a Mesh,
    proxy: &'a Arc<Proxy>,
    pub(crate) resource: RenderedResource,
    pub(crate) parts: Vec<Part>,
    trials: Cell<usize>,
}

/// What becomes of the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Effect {
    Same,
    /// Other content; by position the parts that are not as they were. None of them: it only has more.
    Changes(Vec<usize>),
    /// It does not exist.
    Gone,
}

impl<'a> Experiment<'a> {
    /// `None`: the proxy does not have such a resource.
    pub(crate) fn new(mesh: &'a Mesh, proxy: &'a Arc<Proxy>, kind: TypeUrl, name: &str) -> Option<Self> {
        let resource = render_resource(mesh, &mesh.place(proxy), kind, name)?;
        let parts = parts(&to_value(&resource.any));
        Some(Self { mesh, proxy, resource, parts, trials: Cell::new(0) })
    }

    /// The number of trials is bounded: causes may be missing.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.trials.get() >= MOST_TRIALS
    }

    pub(crate) fn without_objects<'i>(&self, ids: impl IntoIterator<Item = &'i ObjectId>) -> Effect {
        self.effect(|snapshot| snapshot.without_objects(ids))
    }

    pub(crate) fn with_object(&self, object: AnyObject) -> Effect {
        self.effect(|snapshot| snapshot.with_object(object))
    }

    pub(crate) fn with_mesh_config(&self, config: MeshConfig) -> Effect {
        self.effect(|snapshot| snapshot.with_mesh_config(config))
    }

    fn effect(&self, vary: impl FnOnce(&Snapshot) -> Snapshot) -> Effect {
        if self.is_exhausted() {
            return Effect::Same;
        }
        self.trials.set(self.trials.get() + 1);
        let (mesh, delta) = self.mesh.next(&vary(self.mesh.snapshot()));
        if delta.is_empty() {
            return Effect::Same;
        }
        let RenderedResource { kind, name, any, .. } = &self.resource;
        match render_resource(&mesh, &mesh.place(self.proxy), *kind, name) {
            None => Effect::Gone,
            Some(other) if other.any == *any => Effect::Same,
            Some(other) => Effect::Changes(missing(&self.parts, &parts(&to_value(&other.any)))),
        }
    }
}
