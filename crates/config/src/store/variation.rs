//! Snapshots that differ from another one in a few objects, for what-if questions. They are never put in force.

use std::sync::Arc;

use super::{Name, Snapshot};
use crate::diagnostic::ObjectId;
use crate::mesh::MeshConfig;
use crate::object::AnyObject;

impl Snapshot {
    /// With this object in place of the one of its name.
    #[must_use]
    pub fn with_object(&self, object: AnyObject) -> Snapshot {
        let mut varied = self.clone();
        varied.put(object);
        varied
    }

    #[must_use]
    pub fn without_objects<'a>(&self, ids: impl IntoIterator<Item = &'a ObjectId>) -> Snapshot {
        let mut varied = self.clone();
        for id in ids {
            varied.delete(id.kind, &Name { namespace: id.namespace.clone(), name: id.name.clone() });
        }
        varied
    }

    #[must_use]
    pub fn with_mesh_config(&self, mesh: MeshConfig) -> Snapshot {
        Snapshot { mesh: Arc::new(mesh), ..self.clone() }
    }
}
