//! EXTENSION_CONFIG patches.

use config::kinds::envoy_filter::{ApplyTo, Operation};
use model::Placement;
use wire::envoy::config::core::v3::TypedExtensionConfig;

use super::value;
use crate::translated::Translated;

pub(crate) fn new_extensions(placement: &Placement) -> Vec<Translated<TypedExtensionConfig>> {
    let patches = placement.patches.extensions.of(ApplyTo::ExtensionConfig).iter();
    let added = patches.filter(|patch| patch.operation == Operation::Add);
    added.filter_map(|patch| Some(Translated::of_patch(value::message(patch)?, patch))).collect()
}
