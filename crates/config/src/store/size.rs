//! An estimate of the memory of objects, from their sizes and the strings inside the large ones. Visits every object.

use std::mem::{size_of, size_of_val};

use super::{Name, Snapshot, Table};
use crate::catalogue::for_each_kind;
use crate::kind::Kind;
use crate::kinds::endpoint_slice::{EndpointSlice, SliceEndpoint};
use crate::kinds::pod::Pod;
use crate::labels::Labels;
use crate::meta::{Meta, Object};

/// Of a table entry: key, pointer and its share of the nodes, of which a third is empty.
const ENTRY: usize = (size_of::<Name>() + size_of::<usize>()) * 3 / 2 + 2 * size_of::<usize>();

/// Overhead of the allocator and an `Arc`.
const ALLOCATION: usize = 16;

macro_rules! define_sizes {
    ($($variant:ident $table:ident $spec:ty;)*) => {
        impl Snapshot {
            /// Bytes of all objects of a kind.
            pub fn bytes_of(&self, kind: Kind) -> usize {
                match kind {
                    $(Kind::$variant => bytes(&self.$table),)*
                }
            }

            pub fn count_of(&self, kind: Kind) -> usize {
                match kind {
                    $(Kind::$variant => self.$table.len(),)*
                }
            }
        }
    };
}
for_each_kind!(define_sizes);

impl Snapshot {
    pub fn bytes(&self) -> usize {
        let inside = self.pods.values().map(|pod| in_pod(&pod.spec)).sum::<usize>()
            + self.endpoint_slices.values().chain(self.endpoints.values()).map(|it| in_slice(&it.spec)).sum::<usize>();
        Kind::ALL.iter().map(|kind| self.bytes_of(*kind)).sum::<usize>() + inside
    }

    /// Number and memory of endpoints in slices, whatever their health.
    pub fn endpoint_bytes(&self) -> (usize, usize) {
        let slices = || self.endpoint_slices.values().chain(self.endpoints.values());
        let count = slices().map(|slice| slice.spec.endpoints.len()).sum();
        (count, slices().map(|slice| in_slice(&slice.spec)).sum())
    }
}

fn bytes<S>(table: &Table<S>) -> usize {
    table.values().map(|object| ENTRY + ALLOCATION + size_of_val::<Object<S>>(object) + in_meta(&object.meta)).sum()
}

fn in_meta(meta: &Meta) -> usize {
    let owner = meta.controller.as_ref().map_or(0, |owner| size_of_val(&**owner) + text(&owner.name));
    text(&meta.name) + in_labels(&meta.labels) + in_labels(&meta.annotations) + owner
}

fn in_labels(labels: &Labels) -> usize {
    labels.iter().map(|(key, value)| 2 * size_of::<u32>() + key.len() + value.len()).sum()
}

fn in_pod(pod: &Pod) -> usize {
    size_of_val(&*pod.ips) + size_of_val(&*pod.ports)
}

fn in_slice(slice: &EndpointSlice) -> usize {
    let endpoint = |endpoint: &SliceEndpoint| {
        let target = endpoint.target.as_ref().map_or(0, |target| text(&target.name));
        size_of_val(endpoint) + size_of_val(&*endpoint.addresses) + target
    };
    slice.endpoints.iter().map(endpoint).sum()
}

fn text(text: &str) -> usize {
    if text.is_empty() { 0 } else { text.len() + ALLOCATION }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::parse_documents;
    use crate::store::{Store, StoreOptions, Update};

    fn snapshot(endpoints: usize) -> std::sync::Arc<Snapshot> {
        let list: Vec<String> = (0..endpoints).map(|n| format!("{{addresses: [10.0.0.{n}]}}")).collect();
        let text = format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, metadata: {{name: s, namespace: shop}}, \
             endpoints: [{}]}}",
            list.join(", ")
        );
        let mut store = Store::new(StoreOptions { pod_namespace: "istio-system".into(), mesh_config: None });
        store.apply(parse_documents("f", &text).objects.into_iter().map(Update::Put).collect())
    }

    /// A mesh holds thousands of these. Rarely used fields belong in a box, common strings are interned.
    #[test]
    fn objects_stay_small() {
        use crate::kinds::destination_rule::{DestinationRule, Subset};
        use crate::kinds::virtual_service::{HttpRoute, HttpRouteDestination};
        let small = [
            ("Meta", size_of::<Meta>(), 120),
            ("Pod", size_of::<Pod>(), 80),
            ("EndpointSlice", size_of::<EndpointSlice>(), 56),
            ("Endpoint", size_of::<SliceEndpoint>(), 64),
            ("Service", size_of::<crate::kinds::service::ServiceSpec>(), 168),
            ("HttpRoute", size_of::<HttpRoute>(), 216),
            ("HttpRouteDestination", size_of::<HttpRouteDestination>(), 72),
            ("DestinationRule", size_of::<DestinationRule>(), 96),
            ("Subset", size_of::<Subset>(), 48),
        ];
        for (name, bytes, most) in small {
            assert!(bytes <= most, "{name} has {bytes} bytes, more than {most}");
        }
    }

    #[test]
    fn endpoints_count_by_what_they_hold() {
        let (few, many) = (snapshot(2), snapshot(102));
        let ((two, small), (hundred, large)) = (few.endpoint_bytes(), many.endpoint_bytes());
        assert_eq!((two, hundred), (2, 102));
        assert!(large > 40 * small, "{small} and {large} bytes");
        assert_eq!(many.bytes() - few.bytes(), large - small);
        assert_eq!(few.count_of(Kind::EndpointSlice), 1);
        assert!(few.bytes_of(Kind::EndpointSlice) > size_of::<EndpointSlice>());
        assert_eq!(few.bytes_of(Kind::Pod), 0);
    }
}
