//! Merges packed messages: two messages of one type are merged by concatenating their encodings.

use wire::google::protobuf::Any;

/// `false`: their types differ.
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
