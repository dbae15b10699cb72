//! Destinations of routes and mirrors, and their weights. Whether a destination exists is checked in `model`.

use crate::kinds::virtual_service::Destination;
use crate::mesh::dns_name::wildcard_name_fault;
use crate::validate::field_context::FieldContext;
use crate::validate::label::label_fault;

pub(in crate::validate) fn check_destination(at: &FieldContext<'_>, destination: &Destination) {
    let everything = "* is not a destination; name a host";
    let fault =
        if destination.host == "*" { Some(everything.to_owned()) } else { wildcard_name_fault(&destination.host) };
    at.reject("host", fault);
    if !destination.subset.is_empty() {
        at.reject("subset", label_fault(&destination.subset));
    }
    at.if_set("port", destination.port, |at, port| at.check_port("number", port.number));
}

/// The entries of `route`: destination and weight of each.
pub(super) fn check_destinations<'a>(
    at: &FieldContext<'_>,
    entries: impl IntoIterator<Item = (Option<&'a Destination>, i32)>,
) {
    let (mut count, mut total) = (0, 0i64);
    at.each("route", entries, |at, (destination, weight)| {
        match destination {
            Some(destination) => check_destination(&at.field("destination"), destination),
            None => at.field("destination").unfit("it is missing; name the host to send to"),
        }
        at.unfit_field_if("weight", weight < 0, "a weight is 0 or more");
        count += 1;
        total += i64::from(weight);
    });
    if count > 1 && total == 0 {
        at.field("route")
            .unfit("all weights are 0, so that no request could be sent; give weight to at least one destination");
    }
}
