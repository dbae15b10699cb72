//! Merging what is packed: two messages of one type become one by writing the second behind the first.

use wire::google::protobuf::Any;

/// `false`: they are of different types.
pub(super) fn merge(into: &mut Any, from: &Any) -> bool {
    if type_name(into) != type_name(from) {
        return false;
    }
    into.value = [&into.value[..], &from.value[..]].concat().into();
    true
}

fn type_name(any: &Any) -> &str {
    any.type_url.rsplit('/').next().unwrap_or_default()
}
