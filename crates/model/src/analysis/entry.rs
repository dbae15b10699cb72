//! ServiceEntries whose hosts another object declares as well.

use std::collections::BTreeMap;

use config::diagnostic::ObjectId;
use config::host::Host;
use config::kind::Kind;

use super::Diagnostics;
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, diagnostics: &mut Diagnostics) {
    let mut first: BTreeMap<Host, ObjectId> =
        mesh.services.values().map(|service| (service.host.clone(), service.made_from.clone())).collect();
    let mut entries: Vec<_> = mesh.objects.service_entries.values().collect();
    entries.sort_by(|a, b| a.meta.age_order(&b.meta));
    for entry in entries {
        let own = ObjectId {
            kind: Kind::ServiceEntry,
            namespace: entry.meta.namespace.clone(),
            name: entry.meta.name.clone(),
        };
        for (index, host) in entry.spec.hosts.iter().enumerate() {
            match first.get(&Host::new(host)) {
                Some(other) if *other != own => {
                    let what = format!(
                        "{other} declares {host} too; keep one of them, or each proxy sees the one that stands first for it"
                    );
                    diagnostics.warn(Kind::ServiceEntry, &entry.meta, format!("spec.hosts[{index}]"), what);
                }
                Some(_) => {}
                None => {
                    first.insert(Host::new(host), own.clone());
                }
            }
        }
    }
}
