//! Makes a mesh that shows a difference smaller: first without objects, in halves, quarters and so on, then without fields.

use anyhow::Result;

use crate::mesh::{Mesh, is_valid};
use crate::place::{places, remove};

/// What is left when nothing can be removed any more, or after `budget` trials. `shows`: whether a mesh still shows the difference.
pub(crate) fn shrink(mesh: Mesh, budget: usize, shows: &mut dyn FnMut(&Mesh) -> Result<bool>) -> Result<Mesh> {
    let mut shrinking = Shrinking { mesh, left: budget, shows };
    shrinking.objects()?;
    shrinking.fields()?;
    Ok(shrinking.mesh)
}

struct Shrinking<'a> {
    mesh: Mesh,
    left: usize,
    shows: &'a mut dyn FnMut(&Mesh) -> Result<bool>,
}

impl Shrinking<'_> {
    fn objects(&mut self) -> Result<()> {
        let mut size = self.mesh.objects.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < self.mesh.objects.len() {
                let mut smaller = self.mesh.clone();
                smaller.objects.drain(at..(at + size).min(smaller.objects.len()));
                if !self.takes(smaller)? {
                    at += size;
                }
            }
            if size == 1 {
                return Ok(());
            }
            size = size.div_ceil(2);
        }
    }

    /// Outer fields before what is in them.
    fn fields(&mut self) -> Result<()> {
        for object in 0..self.mesh.objects.len() {
            let mut at = 0;
            while let Some(place) = places(&self.mesh.objects[object]).into_iter().nth(at) {
                let mut smaller = self.mesh.clone();
                remove(&mut smaller.objects[object], &place.pointer);
                let valid = is_valid(&smaller.objects[object]);
                if !valid || !self.takes(smaller)? {
                    at += 1;
                }
            }
        }
        Ok(())
    }

    fn takes(&mut self, smaller: Mesh) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let shows = (self.shows)(&smaller)?;
        if shows {
            self.mesh = smaller;
        }
        Ok(shows)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(name: &str, location: &str) -> Value {
        let ports = json!([{ "number": 80, "name": "http", "protocol": "HTTP" }]);
        let spec = json!({ "hosts": ["a.example"], "location": location, "resolution": "NONE", "ports": ports, "exportTo": ["*"] });
        let metadata = json!({ "name": name, "namespace": "n", "labels": { "a": "b" } });
        json!({ "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": metadata, "spec": spec })
    }

    #[test]
    fn what_does_not_matter_goes() {
        let objects =
            (0..9).map(|at| entry(&format!("e{at}"), if at == 6 { "MESH_INTERNAL" } else { "MESH_EXTERNAL" }));
        let mesh = Mesh { objects: objects.collect(), proxies: Vec::new() };
        let mut shows = |mesh: &Mesh| Ok(mesh.objects.iter().any(|it| it["spec"]["location"] == "MESH_INTERNAL"));
        let left = shrink(mesh, 1000, &mut shows).unwrap();
        assert_eq!(left.objects.len(), 1);
        let object = &left.objects[0];
        assert_eq!(object["metadata"], json!({ "name": "e6", "namespace": "n" }));
        assert_eq!((&object["spec"]["exportTo"], &object["spec"]["location"]), (&Value::Null, &json!("MESH_INTERNAL")));
    }

    #[test]
    fn the_budget_ends_it() {
        let mesh =
            Mesh { objects: (0..9).map(|at| entry(&format!("e{at}"), "MESH_EXTERNAL")).collect(), proxies: Vec::new() };
        let mut tried = 0;
        let mut shows = |_: &Mesh| {
            tried += 1;
            Ok(false)
        };
        assert_eq!(shrink(mesh.clone(), 4, &mut shows).unwrap(), mesh);
        assert_eq!(tried, 4);
    }
}
