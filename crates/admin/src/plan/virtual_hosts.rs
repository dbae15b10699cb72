//! A route configuration before and after a change, without the virtual hosts that are equal in both. A large mesh has thousands of hosts in
//! each, and a change reaches few: to decode all of them to JSON took more than 20 times as long as the rest of a plan.

use std::collections::HashMap;

use protobuf::{Error, Fields};
use wire::google::protobuf::Any;

/// `virtual_hosts` of a RouteConfiguration.
const VIRTUAL_HOSTS: u32 = 2;
/// `name` of a VirtualHost.
const NAME: u32 = 1;

/// Removes the equal virtual hosts from both messages, but for one: a message without any has no such list, and all of the other's would be a
/// change. They stay if hosts change their order, which is a change too.
pub(super) fn remove_equal_hosts(before: &mut Any, after: &mut Any) {
    if let Ok(Some([old, new])) = different_hosts(&before.value, &after.value) {
        before.value = old.into();
        after.value = new.into();
    }
}

/// `None`: hosts change their order.
fn different_hosts(before: &[u8], after: &[u8]) -> Result<Option<[Vec<u8>; 2]>, Error> {
    let sides = [virtual_hosts(before)?, virtual_hosts(after)?];
    let by_name = sides.each_ref().map(|hosts| hosts.iter().copied().collect::<HashMap<_, _>>());
    let [old, new] = &by_name;
    let common_names = sides.each_ref().map(|hosts| {
        let names = hosts.iter().map(|(name, _)| *name);
        names.filter(|name| old.contains_key(name) && new.contains_key(name)).collect::<Vec<_>>()
    });
    if common_names[0] != common_names[1] {
        return Ok(None);
    }
    let is_equal = |name: &[u8]| old.get(name) == new.get(name);
    let kept = sides[0].iter().map(|(name, _)| *name).find(|name| is_equal(name));
    let is_removed = |host: &[u8]| host_name(host).is_ok_and(|name| is_equal(name) && Some(name) != kept);
    Ok(Some([without_hosts(before, is_removed)?, without_hosts(after, is_removed)?]))
}

/// Its name, and the whole of it.
type EncodedHost<'a> = (&'a [u8], &'a [u8]);

fn virtual_hosts(routes: &[u8]) -> Result<Vec<EncodedHost<'_>>, Error> {
    let mut hosts = Vec::new();
    let mut fields = Fields::new(routes);
    while let Some(field) = fields.next_field()? {
        if let (VIRTUAL_HOSTS, Some(host)) = (field.number, field.content) {
            hosts.push((host_name(host)?, host));
        }
    }
    Ok(hosts)
}

fn host_name(host: &[u8]) -> Result<&[u8], Error> {
    let mut fields = Fields::new(host);
    while let Some(field) = fields.next_field()? {
        if let (NAME, Some(name)) = (field.number, field.content) {
            return Ok(name);
        }
    }
    Ok(&[])
}

fn without_hosts(routes: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Result<Vec<u8>, Error> {
    let mut kept = Vec::new();
    let mut fields = Fields::new(routes);
    while let Some(field) = fields.next_field()? {
        let removed = field.number == VIRTUAL_HOSTS && field.content.is_some_and(&is_removed);
        if !removed {
            kept.extend_from_slice(field.whole);
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use prost::{Message, Name};
    use wire::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

    use super::*;
    use crate::plan::field_changes;

    fn routes(name: &str, hosts: &[(&str, &str)]) -> Any {
        let host = |(name, domain): &(&str, &str)| VirtualHost {
            name: (*name).to_owned(),
            domains: vec![(*domain).to_owned()],
            ..Default::default()
        };
        let virtual_hosts = hosts.iter().map(host).collect();
        let message = RouteConfiguration { name: name.to_owned(), virtual_hosts, ..Default::default() };
        Any { type_url: RouteConfiguration::type_url(), value: message.encode_to_vec().into() }
    }

    /// The number of hosts that are left on both sides.
    #[track_caller]
    fn check(before: &[(&str, &str)], after: &[(&str, &str)]) -> [usize; 2] {
        let [mut old, mut new] = [routes("80", before), routes("http.80", after)];
        let changes = |old: &Any, new: &Any| field_changes(&wire::json::to_value(old), &wire::json::to_value(new));
        let expected = changes(&old, &new);
        assert!(!expected.is_empty());
        remove_equal_hosts(&mut old, &mut new);
        assert_eq!(changes(&old, &new), expected, "{before:?} {after:?}");
        [old, new].map(|it| RouteConfiguration::decode(it.value).unwrap().virtual_hosts.len())
    }

    #[test]
    fn only_hosts_that_change_are_left_and_one_that_does_not() {
        let before = [("a", "a"), ("b", "b"), ("c", "c")];
        assert_eq!(check(&before, &before), [1, 1]);
        assert_eq!(check(&before, &[("a", "a"), ("b", "x"), ("c", "c")]), [2, 2]);
        assert_eq!(check(&before, &[("a", "x"), ("b", "b"), ("c", "c")]), [2, 2]);
        assert_eq!(check(&before, &[("a", "a"), ("c", "c")]), [2, 1]);
        assert_eq!(check(&before, &[("a", "a"), ("d", "d"), ("b", "b"), ("c", "c")]), [1, 2]);
        assert_eq!(check(&before, &[("a", "x"), ("b", "x"), ("c", "x")]), [3, 3]);
        assert_eq!(check(&[], &before), [0, 3]);
    }

    #[test]
    fn hosts_in_another_order_stay() {
        let before = [("a", "a"), ("b", "b"), ("c", "c")];
        assert_eq!(check(&before, &[("b", "b"), ("a", "a"), ("c", "c")]), [3, 3]);
        assert_eq!(check(&before, &[("b", "x"), ("a", "a"), ("c", "c")]), [3, 3]);
    }

    #[test]
    fn bytes_that_are_no_message_stay() {
        let [mut before, mut after] = [routes("80", &[("a", "a")]), routes("80", &[("a", "a")])];
        before.value = before.value[..before.value.len() - 1].to_vec().into();
        let expected = [before.clone(), after.clone()];
        remove_equal_hosts(&mut before, &mut after);
        assert_eq!([before, after], expected);
    }
}
