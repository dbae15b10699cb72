//! Access logs: which providers are told of a request or a connection, and of which ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::kinds::telemetry::{AccessLogging, Telemetry, WorkloadMode};
use config::mesh::Provider;

use super::{Providers, concerns, names};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Logs {
    /// As the mesh config says for all.
    #[default]
    Mesh,
    /// By provider; empty: none at all.
    To(Vec<LogTo>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogTo {
    pub provider: Arc<str>,
    /// A CEL expression; `None`: everything is told.
    pub filter: Option<String>,
}

/// What the objects decided about one provider.
#[derive(Clone, Copy)]
enum Told<'a> {
    Never,
    /// If this holds.
    Of(Option<&'a str>),
}

impl Logs {
    pub(super) fn new(objects: &[&Telemetry], mode: WorkloadMode, providers: Providers<'_>) -> Self {
        let levels: Vec<&[AccessLogging]> =
            objects.iter().map(|object| object.access_logging.as_slice()).filter(|level| !level.is_empty()).collect();
        let default = &providers.config.default_providers.access_logging;
        let told: BTreeMap<&str, Told<'_>> = if levels.is_empty() {
            default.iter().map(|name| (name.as_str(), Told::Of(None))).collect()
        } else {
            decided(&levels, default, mode)
        };
        let known = told.into_iter().filter_map(|(name, told)| {
            let provider = providers.named(name)?;
            logs(provider.provider.as_ref()?, providers).then_some((provider.name.as_str(), told))
        });
        // Two spellings may name one provider.
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(name, _)| *name);
        // Providers that are switched off still stand between the workload and the mesh's own log.
        if known.is_empty() {
            return Self::Mesh;
        }
        Self::To(
            known
                .into_iter()
                .filter_map(|(name, told)| match told {
                    Told::Never => None,
                    Told::Of(filter) => Some(LogTo { provider: Arc::from(name), filter: filter.map(str::to_owned) }),
                })
                .collect(),
        )
    }
}

/// The nearest object that names providers decides which count; each entry about one of them then decides it anew, and one that names none
/// is about those before it.
fn decided<'a>(
    levels: &[&'a [AccessLogging]],
    default: &'a [String],
    mode: WorkloadMode,
) -> BTreeMap<&'a str, Told<'a>> {
    let fits = |entry: &AccessLogging| concerns(entry.selector.unwrap_or_default().mode, mode);
    let mut counting: BTreeSet<&str> = default.iter().map(String::as_str).collect();
    let mut filters: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    for level in levels {
        let mut named = BTreeSet::new();
        for entry in level.iter().filter(|entry| fits(entry)) {
            let filter = entry.filter.as_ref().map(|filter| filter.expression.as_str());
            for name in names(&entry.providers) {
                named.insert(name);
                filters.insert(name, filter);
            }
        }
        if !named.is_empty() {
            counting = named;
        }
    }
    let mut told = BTreeMap::new();
    let mut before: Vec<&str> = default.iter().map(String::as_str).collect();
    for entry in levels.iter().copied().flatten() {
        if !entry.providers.is_empty() {
            before = names(&entry.providers).collect();
        }
        for name in before.iter().filter(|name| counting.contains(**name) && fits(entry)) {
            let off = entry.disabled == Some(true);
            let filter = filters.get(name).copied().flatten();
            told.insert(*name, if off { Told::Never } else { Told::Of(filter) });
        }
    }
    told
}

/// A provider whose service is unknown counts as one that writes no logs.
fn logs(provider: &Provider, providers: Providers<'_>) -> bool {
    match provider {
        Provider::EnvoyFileAccessLog(_) => true,
        Provider::EnvoyHttpAls(als) => (providers.finds)(&als.service),
        Provider::EnvoyTcpAls(als) => (providers.finds)(&als.service),
        Provider::EnvoyOtelAls(als) => (providers.finds)(&als.service),
        _ => false,
    }
}
