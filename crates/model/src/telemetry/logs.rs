//! Access logs: the providers that receive them, and their filters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::kinds::telemetry::{AccessLogging, Telemetry, WorkloadMode};
use config::mesh::ProviderKind;

use super::{Providers, concerns, names};

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum AccessLogs {
    /// The mesh config's `accessLogFile`.
    #[default]
    Mesh,
    /// By provider; empty: none at all.
    To(Vec<AccessLogProvider>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccessLogProvider {
    pub provider: Arc<str>,
    /// A CEL expression; `None`: everything is logged.
    pub filter: Option<String>,
}

/// The setting of one provider.
#[derive(Clone, Copy)]
enum LogSetting<'a> {
    Disabled,
    /// Enabled, with this filter.
    Enabled(Option<&'a str>),
}

impl AccessLogs {
    pub(super) fn new(objects: &[&Telemetry], mode: WorkloadMode, providers: Providers<'_>) -> Self {
        let levels: Vec<&[AccessLogging]> =
            objects.iter().map(|object| object.access_logging.as_slice()).filter(|level| !level.is_empty()).collect();
        let default = &providers.config.default_providers.access_logging;
        let settings: BTreeMap<&str, LogSetting<'_>> = if levels.is_empty() {
            default.iter().map(|name| (name.as_str(), LogSetting::Enabled(None))).collect()
        } else {
            provider_settings(&levels, default, mode)
        };
        let known = settings.into_iter().filter_map(|(name, settings)| {
            let provider = providers.named(name)?;
            logs(provider.provider.as_ref()?, providers).then_some((provider.name.as_str(), settings))
        });
        // Names that differ in case may mean one provider.
        let mut known: Vec<_> = known.collect();
        known.sort_by_key(|(name, _)| *name);
        // Providers that are disabled still replace the mesh's own access log.
        if known.is_empty() {
            return Self::Mesh;
        }
        Self::To(
            known
                .into_iter()
                .filter_map(|(name, settings)| match settings {
                    LogSetting::Disabled => None,
                    LogSetting::Enabled(filter) => {
                        Some(AccessLogProvider { provider: Arc::from(name), filter: filter.map(str::to_owned) })
                    }
                })
                .collect(),
        )
    }
}

/// The nearest object that names providers decides which count; each entry for one of them then sets it again, and one without providers
/// applies to those before it.
fn provider_settings<'a>(
    levels: &[&'a [AccessLogging]],
    default: &'a [String],
    mode: WorkloadMode,
) -> BTreeMap<&'a str, LogSetting<'a>> {
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
    let mut settings = BTreeMap::new();
    let mut before: Vec<&str> = default.iter().map(String::as_str).collect();
    for entry in levels.iter().copied().flatten() {
        if !entry.providers.is_empty() {
            before = names(&entry.providers).collect();
        }
        for name in before.iter().filter(|name| counting.contains(**name) && fits(entry)) {
            let off = entry.disabled == Some(true);
            let filter = filters.get(name).copied().flatten();
            settings.insert(*name, if off { LogSetting::Disabled } else { LogSetting::Enabled(filter) });
        }
    }
    settings
}

/// A provider whose service is unknown counts as one without access logs.
fn logs(provider: &ProviderKind, providers: Providers<'_>) -> bool {
    match provider {
        ProviderKind::EnvoyFileAccessLog(_) => true,
        ProviderKind::EnvoyHttpAls(als) => (providers.finds)(&als.service),
        ProviderKind::EnvoyTcpAls(als) => (providers.finds)(&als.service),
        ProviderKind::EnvoyOtelAls(als) => (providers.finds)(&als.service),
        _ => false,
    }
}
