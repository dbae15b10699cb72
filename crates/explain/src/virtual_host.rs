//! Which virtual host of a route configuration has a request.

use wire::envoy::config::route::v3::{RouteConfiguration, VirtualHost};

/// With the domain that matched: an exact one before the longest suffix, then the longest prefix, then `*`.
pub(crate) fn find<'a>(routes: &'a RouteConfiguration, authority: &str) -> Option<(&'a VirtualHost, &'a str)> {
    let host = authority.to_ascii_lowercase();
    let host = if routes.ignore_port_in_host_matching { without_port(&host) } else { &host };
    let domains =
        || routes.virtual_hosts.iter().flat_map(|it| it.domains.iter().map(move |domain| (it, domain.as_str())));
    let exact = domains().find(|(_, domain)| domain.to_ascii_lowercase() == host);
    let longest = |matches: &dyn Fn(&str) -> bool| {
        // `max_by_key` takes the last of equals, Envoy has none: a domain stands once.
        domains()
            .filter(|(_, domain)| *domain != "*" && matches(&domain.to_ascii_lowercase()))
            .max_by_key(|(_, domain)| domain.len())
    };
    exact
        .or_else(|| {
            longest(&|domain| domain.strip_prefix('*').is_some_and(|end| host.len() > end.len() && host.ends_with(end)))
        })
        .or_else(|| {
            longest(&|domain| {
                domain.strip_suffix('*').is_some_and(|start| host.len() > start.len() && host.starts_with(start))
            })
        })
        .or_else(|| domains().find(|(_, domain)| *domain == "*"))
}

/// IPv6 addresses have brackets.
pub(crate) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port))
            if port.bytes().all(|byte| byte.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']')) =>
        {
            host
        }
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(authority: &str, want: &str) {
        let host = |name: &str| VirtualHost { name: name.into(), domains: vec![name.into()], ..Default::default() };
        let routes = RouteConfiguration {
            virtual_hosts: ["*", "*.b.c", "*.c", "a.*", "a.b.c", "a.b.*"].map(host).to_vec(),
            ignore_port_in_host_matching: true,
            ..Default::default()
        };
        assert_eq!(find(&routes, authority).map(|(_, domain)| domain), Some(want), "{authority}");
    }

    #[test]
    fn exact_before_suffix_before_prefix_before_any() {
        check("a.b.c", "a.b.c");
        check("A.b.C:80", "a.b.c");
        check("a.x.b.c", "*.b.c");
        check("a.c", "*.c");
        check("a.b.d", "a.b.*");
        check("a.d", "a.*");
        check("d", "*");
        check(".c", "*");
    }
}
