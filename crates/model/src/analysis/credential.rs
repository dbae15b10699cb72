//! Credentials that Gateways name and that their routers will not get.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::kind::Kind;
use config::kinds::gateway::Gateway;
use config::meta::Object;

use super::{Known, Notes};
use crate::credential::{CredentialName, Reader};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, known: &Known<'_>, notes: &mut Notes) {
    // A folder without Secrets says nothing about which there are.
    if mesh.objects.secrets.is_empty() {
        return;
    }
    for object in mesh.objects.gateways.values() {
        let namespaces = routers(object, known);
        for (index, server) in object.spec.servers.iter().enumerate() {
            let Some(tls) = &server.tls else { continue };
            let one = Some((&tls.credential_name, format!("spec.servers[{index}].tls.credentialName")));
            let several = tls.credential_names.iter().enumerate();
            let several = several.map(|(at, name)| (name, format!("spec.servers[{index}].tls.credentialNames[{at}]")));
            for (name, field) in one.into_iter().chain(several) {
                let Some(wanted) = CredentialName::of_server(name) else { continue };
                for why in namespaces.iter().filter_map(|namespace| lacking(mesh, &wanted, namespace)) {
                    notes.warn(Kind::Gateway, &object.meta, &field, why);
                }
            }
        }
    }
}

/// Where the Gateway's routers are.
fn routers<'a>(object: &Object<Gateway>, known: &Known<'a>) -> BTreeSet<&'a str> {
    let chosen = known.workloads.iter().filter(|(_, workloads)| {
        !object.spec.selector.is_empty() && workloads.iter().any(|labels| labels.contains_all(&object.spec.selector))
    });
    chosen.map(|(namespace, _)| *namespace).collect()
}

fn lacking(mesh: &Mesh, wanted: &CredentialName, namespace: &str) -> Option<String> {
    let reader = Reader { namespace: Arc::from(namespace), service_account: Arc::from("") };
    if wanted.is_foreign(&reader) {
        return Some(format!(
            "routers of namespace {namespace} are not given Secrets of others; name one of their own"
        ));
    }
    mesh.credential(wanted, &reader).err().map(|missing| missing.to_string())
}
