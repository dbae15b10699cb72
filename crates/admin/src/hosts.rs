//! The `Host` of a request, against DNS rebinding: a web page whose name resolves to an address of ours reaches us through the browser of an
//! operator, and its requests have that name as `Host`.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};

/// The names of this server, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct OwnHosts(Vec<String>);

impl OwnHosts {
    /// `names`: those of the serving certificate. Names of Services are also accepted with the domain of the cluster, but not without `.svc`: a
    /// namespace may have the name of a public top-level domain.
    pub(crate) fn new(names: &[String], domain: &str) -> OwnHosts {
        let services = names.iter().filter(|name| name.ends_with(".svc")).map(|name| format!("{name}.{domain}"));
        let names = names.iter().cloned().chain(services).chain(["localhost".to_owned()]);
        OwnHosts(names.map(|name| name.to_ascii_lowercase()).collect())
    }

    /// For a request that changes something: a name of this server, loopback, or the address at which the request arrived.
    pub(crate) fn is_own(&self, host: &Host, local: IpAddr) -> bool {
        match host {
            Host::Address(address) => address.is_loopback() || *address == local.to_canonical(),
            Host::Name(name) => self.0.contains(name),
        }
    }

    /// For a request that only reads: any address. A page of another site may send such a request, but a browser does not let it read the
    /// answer, unless its own name resolves to us.
    pub(crate) fn is_safe(&self, host: &Host) -> bool {
        matches!(host, Host::Address(_)) || matches!(host, Host::Name(name) if self.0.contains(name))
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    /// In lower case, without the dot of the root.
    Name(String),
}

/// The host of the request, without the port, since a port-forward may have any. `None`: the request names no host.
pub(crate) fn host(uri: &Uri, headers: &HeaderMap) -> Option<Result<Host, String>> {
    let mut named = headers.get_all(header::HOST).iter();
    let text = match (named.next(), named.next()) {
        (Some(_), Some(_)) => return Some(Err("several".to_owned())),
        (Some(one), None) => one.to_str().ok().map(str::to_owned).ok_or_else(|| "not text".to_owned()),
        (None, _) => return uri.authority().map(|authority| parse(authority.as_str())),
    };
    let found = text.and_then(|text| parse(&text));
    // An absolute request target names the host a second time, and takes precedence over the header.
    match uri.authority().map(|authority| parse(authority.as_str())) {
        Some(target) if target != found => {
            Some(Err(format!("{:?}, and not that of the target", headers[header::HOST])))
        }
        _ => Some(found),
    }
}

fn parse(text: &str) -> Result<Host, String> {
    let wrong = || format!("{:?}", text.chars().take(80).collect::<String>());
    let authority: Authority = text.parse().map_err(|_| wrong())?;
    if authority.as_str().contains('@') {
        return Err(wrong());
    }
    let host = authority.host();
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(Host::Address(address.to_canonical())),
        Err(_) => Ok(Host::Name(host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 5));

    fn hosts() -> OwnHosts {
        OwnHosts::new(&["istiod.dev.svc".to_owned(), "Mesh.Example".to_owned()], "cluster.local")
    }

    fn of(text: &str) -> Option<Result<Host, String>> {
        let headers = HeaderMap::from_iter([(header::HOST, text.parse().unwrap())]);
        host(&Uri::from_static("/debug/ca"), &headers)
    }

    fn is_own(text: &str) -> bool {
        of(text).unwrap().is_ok_and(|host| hosts().is_own(&host, POD))
    }

    #[test]
    fn names_of_this_server_and_loopback_are_its_own() {
        for own in [
            "localhost",
            "LOCALHOST.:15014",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:15014",
            "[::ffff:127.0.0.1]",
            "10.0.0.5:15014",
            "istiod.dev.svc",
            "istiod.dev.svc.cluster.local:15014",
            "mesh.example",
        ] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "127.0.0.1.evil.example",
            "0.0.0.0:15014",
            "[::]",
            "10.0.0.6",
            "istiod.dev",
            "127.1",
            "a@localhost",
            "localhost@evil.example",
            "localhost localhost",
            "",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }

    #[test]
    fn a_foreign_name_may_not_read() {
        let is_safe = |text: &str| of(text).unwrap().is_ok_and(|host| hosts().is_safe(&host));
        assert!(is_safe("localhost:1") && is_safe("10.9.9.9") && is_safe("istiod.dev.svc"));
        assert!(!is_safe("evil.example") && !is_safe("meltemi"));
    }

    #[test]
    fn two_hosts_are_rejected() {
        let mut headers = HeaderMap::new();
        assert_eq!(host(&Uri::from_static("/"), &headers), None);
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(host(&Uri::from_static("http://evil.example/"), &headers).unwrap().is_err());
        assert!(host(&Uri::from_static("http://localhost/"), &headers).unwrap().is_ok());
        headers.append(header::HOST, "localhost".parse().unwrap());
        assert!(host(&Uri::from_static("/"), &headers).unwrap().is_err());
    }
}
