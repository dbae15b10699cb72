//! Panics while resources are translated. Each is caught where one resource, or one group of them, is translated: what was served before stays in force,
//! everything else goes on, and a diagnostic names the objects that may be the cause.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use config::diagnostic::{Diagnostic, ObjectId};
use model::{Placement, Service};

use crate::layer::BuildContext;

/// Objects that one failure is reported on: often it is the first.
const MAX_SUSPECTS: usize = 10;

/// What could not be translated, by the namespace of the proxies and the resources.
#[derive(Clone, Default)]
pub(crate) struct TranslationFailures(BTreeMap<(Arc<str>, String), TranslationFailure>);

#[derive(Clone)]
struct TranslationFailure {
    message: String,
    /// Objects that the resources are made from.
    suspects: Vec<ObjectId>,
}

impl TranslationFailures {
    pub(crate) fn diagnostics(&self) -> Vec<Diagnostic> {
        let reported = self.0.iter().flat_map(|((namespace, resources), failure)| {
            let what = format!(
                "may be what could not be translated: {resources} for proxies in namespace {namespace} (internal error: {}); the last good \
                 version stays in force; change the object, and report the error with the log",
                failure.message
            );
            match &failure.suspects[..] {
                [] => vec![Diagnostic::error(what)],
                suspects => suspects.iter().map(|id| Diagnostic::error(what.clone()).on(id.clone())).collect(),
            }
        });
        reported.collect()
    }
}

impl BuildContext<'_> {
    /// The translation, or `None` if it panicked. `resources`: what is translated, for people.
    pub(crate) fn isolated<T>(
        &mut self,
        placement: &Placement,
        resources: impl Fn() -> String,
        suspects: impl FnOnce() -> Vec<ObjectId>,
        translate: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        // Caches get whole entries only, so that a panic leaves no half of one.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(test)]
            tests::panic_if_injected(&resources());
            translate(self)
        }));
        let namespace = &placement.proxy.namespace;
        match outcome {
            Ok(made) => {
                if !self.failures.0.is_empty() {
                    self.failures.0.remove(&(namespace.clone(), resources()));
                }
                Some(made)
            }
            Err(panic) => {
                let mut suspects = suspects();
                suspects.truncate(MAX_SUSPECTS);
                let failure = TranslationFailure { message: panic_message(&*panic), suspects };
                self.failures.0.insert((namespace.clone(), resources()), failure);
                None
            }
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").chars().take(200).collect()
}

/// Objects that clusters and load assignments of a service are made from.
pub(crate) fn service_suspects(placement: &Placement, service: &Service) -> Vec<ObjectId> {
    let rule = placement.destination_rule(&service.host).into_iter().flat_map(|rule| rule.made_from.iter().cloned());
    std::iter::once(service.made_from.clone()).chain(rule).collect()
}

/// VirtualServices that the proxy imports.
pub(crate) fn route_suspects(placement: &Placement) -> Vec<ObjectId> {
    let routed = placement.scope.egress.iter().flat_map(|egress| egress.virtual_services.iter());
    routed.flat_map(|object| object.made_from.iter().cloned()).collect()
}

/// Services that the proxy imports, and VirtualServices.
pub(crate) fn listener_suspects(placement: &Placement) -> Vec<ObjectId> {
    let mut suspects = route_suspects(placement);
    suspects.extend(placement.scope.services.iter().map(|service| service.made_from.clone()));
    suspects
}

/// Policies, telemetry, plugins and services of the workload.
pub(crate) fn workload_suspects(placement: &Placement) -> Vec<ObjectId> {
    let own = placement.targets.iter().map(|target| target.service.made_from.clone());
    let settings = placement.policies.made_from.iter().chain(&placement.telemetry.made_from).cloned();
    settings.chain(placement.plugins.made_from()).chain(own).collect()
}

#[cfg(test)]
mod tests;
