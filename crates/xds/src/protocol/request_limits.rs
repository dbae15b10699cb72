//! Limits on the encoded form of a request, checked before it is decoded: many small fields take up to a hundred times their bytes
//! in memory, and time for each. What the fields mean is in `request`.

use protobuf::{Field, Fields};

use crate::{
    Variant,
    protocol::{request_error::RequestError, request_fields::RequestField},
};

/// Of one resource name, in bytes.
const MAX_NAME: usize = 1024;
/// Of the whole node, in bytes. Istio's agents send 2 to 20 KB.
pub(crate) const MAX_NODE: usize = 1 << 20;
/// Fields of a request besides names, of its node, and of its error. Envoy's node lists its extensions, about a thousand.
const MAX_FIELDS: usize = 10_000;

/// `max_names`: names that a request may subscribe to and unsubscribe from, together, as sent; and initial versions that it may hold.
pub(crate) fn check(variant: Variant, message: &[u8], max_names: usize) -> Result<(), RequestError> {
    let (mut names, mut versions, mut fields, mut node) = (0, 0, 0, 0);
    let mut rest = Fields::new(message);
    while let Some(Field { number, content, .. }) = rest.next_field()? {
        let inside = content.unwrap_or_default();
        match RequestField::of(variant, number) {
            // As sent, duplicates too.
            RequestField::Subscribe | RequestField::Unsubscribe => names += 1,
            RequestField::InitialVersion => versions += 1,
            // Each parameter counts as a name.
            RequestField::Locator => names += 1 + count(inside, max_names),
            RequestField::Node => {
                node += inside.len();
                if node > MAX_NODE {
                    return Err(RequestError::NodeTooLarge { len: node, limit: MAX_NODE });
                }
                fields += 1 + count(inside, MAX_FIELDS);
            }
            RequestField::Error => fields += 1 + count(inside, MAX_FIELDS),
            RequestField::Other => fields += 1,
        }
        // The rest need not be counted.
        if fields > MAX_FIELDS {
            return Err(RequestError::TooManyFields { limit: MAX_FIELDS });
        }
        if names.max(versions) > max_names {
            return Err(RequestError::TooManyNames { count: names.max(versions), limit: max_names });
        }
    }
    Ok(())
}

pub(crate) fn check_name_length(len: usize) -> Result<(), RequestError> {
    if len > MAX_NAME { Err(RequestError::NameTooLong { len, limit: MAX_NAME }) } else { Ok(()) }
}

/// Fields of a message, no more than one beyond `limit`. Decoding says what is wrong with a malformed one.
fn count(message: &[u8], limit: usize) -> usize {
    let (mut count, mut fields) = (0, Fields::new(message));
    while count <= limit && matches!(fields.next_field(), Ok(Some(_))) {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use wire::{
        envoy::{
            config::core::v3::{Extension, Node},
            service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator},
        },
        google::{protobuf::Any, rpc},
    };

    use super::*;

    fn sotw(request: &DiscoveryRequest) -> Result<(), RequestError> {
        check(Variant::Sotw, &request.encode_to_vec(), 10)
    }

    fn delta(request: &DeltaDiscoveryRequest) -> Result<(), RequestError> {
        check(Variant::Delta, &request.encode_to_vec(), 10)
    }

    fn names(count: usize) -> Vec<String> {
        vec!["a".to_owned(); count]
    }

    #[test]
    fn counts_names_as_sent_with_duplicates() {
        let too_many = Err(RequestError::TooManyNames { count: 11, limit: 10 });
        let list = |count| DiscoveryRequest { resource_names: names(count), ..Default::default() };
        assert_eq!((sotw(&list(10)), sotw(&list(11))), (Ok(()), too_many.clone()));
        let both = |more, less, versions: usize| DeltaDiscoveryRequest {
            resource_names_subscribe: names(more),
            resource_names_unsubscribe: names(less),
            initial_resource_versions: (0..versions).map(|n| (n.to_string(), String::new())).collect(),
            ..Default::default()
        };
        assert_eq!((delta(&both(5, 5, 10)), delta(&both(5, 6, 0))), (Ok(()), too_many.clone()));
        assert_eq!(delta(&both(0, 0, 11)), too_many);
        let parameters = |count: usize| ResourceLocator {
            name: String::new(),
            dynamic_parameters: (0..count).map(|n| (n.to_string(), String::new())).collect(),
        };
        let located = |count| DeltaDiscoveryRequest {
            resource_locators_subscribe: vec![parameters(count)],
            ..Default::default()
        };
        assert_eq!((delta(&located(9)), delta(&located(10))), (Ok(()), too_many));
    }

    #[test]
    fn counts_the_fields_of_a_node_and_of_an_error() {
        let too_many = Err(RequestError::TooManyFields { limit: MAX_FIELDS });
        let node = |count| Some(Node { extensions: vec![Extension::default(); count], ..Node::default() });
        assert_eq!(sotw(&DiscoveryRequest { node: node(MAX_FIELDS - 1), ..Default::default() }), Ok(()));
        assert_eq!(sotw(&DiscoveryRequest { node: node(MAX_FIELDS), ..Default::default() }), too_many);
        assert_eq!(delta(&DeltaDiscoveryRequest { node: node(MAX_FIELDS), ..Default::default() }), too_many);
        let error_detail = Some(rpc::Status { details: vec![Any::default(); MAX_FIELDS], ..Default::default() });
        assert_eq!(delta(&DeltaDiscoveryRequest { error_detail, ..Default::default() }), too_many);
        let unknown = [0x78, 0].repeat(MAX_FIELDS + 1);
        assert_eq!(check(Variant::Delta, &unknown, 10), too_many);
    }

    #[test]
    fn the_parts_of_a_split_node_count_together() {
        let part = DiscoveryRequest {
            node: Some(Node { id: "n".repeat(MAX_NODE / 2), ..Node::default() }),
            ..Default::default()
        };
        let part = part.encode_to_vec();
        assert_eq!(check(Variant::Sotw, &part, 10), Ok(()));
        assert!(matches!(check(Variant::Sotw, &part.repeat(2), 10), Err(RequestError::NodeTooLarge { .. })));
    }

    #[test]
    fn rejects_malformed_messages() {
        for bad in [&[0xff][..], &[0x0a, 9], &[0x0a, 0x80], &[0x03]] {
            assert!(matches!(check(Variant::Delta, bad, 10), Err(RequestError::Malformed(_))), "{bad:?}");
        }
    }
}
