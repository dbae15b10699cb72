//! Credentials that Gateways name and that their proxies will not get.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::kind::Kind;
use config::kinds::gateway::Gateway;
use config::meta::Object;

use super::{Diagnostics, ReferenceIndex};
use crate::credential::{CredentialName, CredentialReader};
use crate::mesh::Mesh;

pub(super) fn check(mesh: &Mesh, references: &ReferenceIndex<'_>, diagnostics: &mut Diagnostics) {
    // A folder without Secrets does not show which ones exist.
    if mesh.objects.secrets.is_empty() {
        return;
    }
    for object in mesh.objects.gateways.values() {
        let namespaces = proxy_namespaces(object, references);
        for (index, server) in object.spec.servers.iter().enumerate() {
            let Some(tls) = &server.tls else { continue };
            let one = Some((&tls.credential_name, format!("spec.servers[{index}].tls.credentialName")));
            let several = tls.credential_names.iter().enumerate();
            let several = several.map(|(at, name)| (name, format!("spec.servers[{index}].tls.credentialNames[{at}]")));
            for (name, field) in one.into_iter().chain(several) {
                let Some(wanted) = CredentialName::of_server(name) else { continue };
                for why in namespaces.iter().filter_map(|namespace| unavailable(mesh, &wanted, namespace)) {
                    diagnostics.warn(Kind::Gateway, &object.meta, &field, why);
                }
            }
        }
    }
}

/// Namespaces in which the Gateway's proxies run.
fn proxy_namespaces<'a>(object: &Object<Gateway>, references: &ReferenceIndex<'a>) -> BTreeSet<&'a str> {
    let chosen = references.workloads.iter().filter(|(_, workloads)| {
        !object.spec.selector.is_empty() && workloads.iter().any(|labels| labels.contains_all(&object.spec.selector))
    });
    chosen.map(|(namespace, _)| *namespace).collect()
}

fn unavailable(mesh: &Mesh, wanted: &CredentialName, namespace: &str) -> Option<String> {
    let reader = CredentialReader { namespace: Arc::from(namespace), service_account: Arc::from("") };
    if wanted.is_foreign(&reader) {
        return Some(format!(
            "gateways of namespace {namespace} may not read Secrets of other namespaces; name one of their own"
        ));
    }
    mesh.credential(wanted, &reader).err().map(|missing| missing.to_string())
}
