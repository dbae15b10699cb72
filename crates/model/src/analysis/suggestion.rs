//! What a reference that leads nowhere was probably meant to be: `; did you mean infra/web?`

use config::host::Host;
use config::similar::most_similar;
use config::store::{Name, Table};

use super::ReferenceIndex;

/// Shorter names are similar by chance.
const SHORTEST: usize = 3;

/// Of names in one list, such as subsets of a host.
pub(super) fn of_names<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    worded(similar(name, &known))
}

/// Of objects of one kind: the same name in another namespace, else a similar one in this namespace.
pub(super) fn of_objects<S>(namespace: &str, name: &str, table: &Table<S>) -> String {
    let elsewhere = table.keys().find(|known| *known.name == *name);
    if let Some(Name { namespace, name }) = elsewhere {
        return worded(Some(&format!("{namespace}/{name}")));
    }
    let here: Vec<&str> =
        table.keys().filter(|known| *known.namespace == *namespace).map(|known| &*known.name).collect();
    worded(similar(name, &here).map(|name| format!("{namespace}/{name}")).as_deref())
}

/// Of services: the same first label in another domain or namespace, else a similar one in the same.
pub(super) fn of_hosts(host: &Host, references: &ReferenceIndex<'_>) -> String {
    let Some((first, rest)) = host.as_str().split_once('.') else { return String::new() };
    let split =
        || references.services.keys().filter_map(|known| Some((known.as_str(), known.as_str().split_once('.')?)));
    let here: Vec<&str> = split().filter(|(_, (_, domain))| *domain == rest).map(|(_, (label, _))| label).collect();
    if let Some(label) = similar(first, &here) {
        return worded(Some(&format!("{label}.{rest}")));
    }
    worded(split().find(|(_, (label, _))| *label == first && *label != "*").map(|(known, _)| known))
}

fn similar<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.len() < SHORTEST { None } else { most_similar(name, known) }
}

fn worded(meant: Option<&str>) -> String {
    meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
}
