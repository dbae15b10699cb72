//! Patches that add configurations which filters ask for by name.

use config::kinds::envoy_filter::{ApplyTo, Operation};
use model::Placement;
use wire::envoy::config::core::v3::TypedExtensionConfig;

use super::value;
use crate::made::Made;

pub(crate) fn added(placement: &Placement) -> Vec<Made<TypedExtensionConfig>> {
    let patches = placement.patches.extensions.of(ApplyTo::ExtensionConfig).iter();
    let added = patches.filter(|patch| patch.operation == Operation::Add);
    added.filter_map(|patch| Some(Made::added(value::message(patch)?, patch))).collect()
}
