//! An object with another spec: the reverse of `AnyObject::istio_spec`.

use serde_json::Value;

use super::AnyObject;
use crate::de::Rules;
use crate::tree::Node;

impl AnyObject {
    /// The same object of one of Istio's kinds with this spec in protobuf's JSON. It is not validated. `None`: it cannot be read.
    pub fn with_istio_spec(&self, spec: &Value) -> Option<AnyObject> {
        let node = Node::from_json(spec);
        AnyObject::read(self.kind(), self.meta().clone(), &node, "spec", Rules::Protobuf).complete().ok()
    }
}

#[cfg(test)]
mod tests {
    use crate::object::parse_documents;

    #[test]
    fn a_spec_survives_the_way_to_json_and_back() {
        let texts = [
            "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: n}, spec: {hosts: [a], http: [{match: [{uri: \
             {prefix: /}}], timeout: 1500ms, fault: {abort: {httpStatus: 503, percentage: {value: 0.5}}}, route: [{destination: {host: a}}]}]}}",
            "{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: n}, spec: {hosts: [a.b], ports: [{number: 80, name: \
             http, protocol: HTTP}], resolution: STATIC}, status: {addresses: [{value: 240.0.0.1, host: a.b}]}}",
            "{apiVersion: networking.istio.io/v1alpha3, kind: EnvoyFilter, metadata: {name: a, namespace: n}, spec: {configPatches: [{applyTo: CLUSTER, \
             match: {context: SIDECAR_OUTBOUND, cluster: {name: x}}, patch: {operation: MERGE, value: {connect_timeout: 1s, n: 1.5}}}]}}",
        ];
        for text in texts {
            let object = parse_documents("f.yaml", text).objects.remove(0);
            let spec = object.istio_spec().unwrap();
            assert_eq!(object.with_istio_spec(&spec).as_ref(), Some(&object), "{spec}");
        }
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_none() {
        let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: a, namespace: n}, spec: {hosts: [a]}}";
        let object = parse_documents("f.yaml", text).objects.remove(0);
        assert_eq!(object.with_istio_spec(&serde_json::json!({"hosts": 7})), None);
    }
}
