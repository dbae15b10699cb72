//! Names and addresses as istiod's mesh validation accepts them. Each function returns an error text.

use std::net::IpAddr;

const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: usize = 63;

/// Letters, digits and inner hyphens.
pub(crate) fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends_well = |end: Option<&u8>| end.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= LONGEST_LABEL
        && ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-')
}

pub(crate) fn name_fault(name: &str) -> Option<String> {
    length_fault(name).or_else(|| labels_fault(name))
}

/// A name whose first label may be `*`, `*x` or `*-x`.
pub(crate) fn wildcard_name_fault(name: &str) -> Option<String> {
    if let Some(fault) = length_fault(name) {
        return Some(fault);
    }
    let (first, rest) = name.split_once('.').map_or((name, None), |(first, rest)| (first, Some(rest)));
    let tail = first.strip_prefix('*').map_or(first, |tail| tail.strip_prefix('-').unwrap_or(tail));
    if first != "*" && !(first.len() <= LONGEST_LABEL && is_label(tail)) {
        return Some(label_fault(name, first));
    }
    rest.filter(|rest| !rest.is_empty()).and_then(labels_fault)
}

/// A trust domain may be all digits and of any length, which a host name may not.
pub(crate) fn trust_domain_fault(domain: &str) -> Option<String> {
    if domain.is_empty() {
        return Some("a trust domain must not be empty".into());
    }
    let labels = domain.strip_suffix('.').unwrap_or(domain);
    labels.split('.').find(|label| !is_label(label)).map(|label| label_fault(domain, label))
}

/// `host:port`, with an IPv6 address in brackets.
pub(crate) fn address_fault(address: &str) -> Option<String> {
    let Some((host, port)) = address.rsplit_once(':') else {
        return Some(format!("{address:?} has no port; write host:port"));
    };
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']').unwrap_or(host),
        None if host.contains(':') => return Some(format!("{address:?}: put the IPv6 address in brackets")),
        None => host,
    };
    if port.parse::<u16>().unwrap_or(0) == 0 {
        return Some(format!("{port:?} is not a port; use 1 to 65535"));
    }
    if host.parse::<IpAddr>().is_err() && name_fault(host).is_some() {
        return Some(format!("{host:?} is neither a host name nor an IP address"));
    }
    None
}

fn length_fault(name: &str) -> Option<String> {
    match name.len() {
        0 => Some("a host name must not be empty".into()),
        n if n > LONGEST_NAME => Some(format!("the host name has {n} characters; {LONGEST_NAME} is the most")),
        _ => None,
    }
}

/// A trailing dot is valid.
fn labels_fault(name: &str) -> Option<String> {
    let last = name.rsplit('.').next().unwrap_or(name);
    if !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit()) {
        return Some(format!("{name:?} is not a host name: its last label is a number"));
    }
    let labels = name.strip_suffix('.').unwrap_or(name);
    labels.split('.').find(|label| !is_label(label)).map(|label| label_fault(name, label))
}

fn label_fault(name: &str, label: &str) -> String {
    format!("{name:?} is not a host name: {label:?} must be letters, digits and inner hyphens, {LONGEST_LABEL} at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels() {
        let longest = "a".repeat(63);
        for good in ["a", "0", "a-b", "A9", longest.as_str()] {
            assert!(is_label(good), "{good}");
        }
        for bad in ["", "-a", "a-", "a_b", "a.b", &"a".repeat(64)] {
            assert!(!is_label(bad), "{bad}");
        }
    }

    #[test]
    fn names() {
        for good in ["a.b", "a.b.", "istiod"] {
            assert_eq!(name_fault(good), None, "{good}");
        }
        for bad in ["", ".", "a..b", "1.2.3.4", "*.b", &"a.".repeat(128)] {
            assert!(name_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn wildcards_stand_in_front() {
        for good in ["*", "*.a", "*a.b", "*-a.b", "a.b", "a."] {
            assert_eq!(wildcard_name_fault(good), None, "{good}");
        }
        for bad in ["", "a.*", "a*.b", "**", "*-", "*.*"] {
            assert!(wildcard_name_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn trust_domains() {
        for good in ["cluster.local", "a.", "td1", "12.34"] {
            assert_eq!(trust_domain_fault(good), None, "{good}");
        }
        for bad in ["", "a b", "a..b", "spiffe://a"] {
            assert!(trust_domain_fault(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn addresses() {
        for good in ["istiod.istio-system.svc:15012", "127.0.0.1:1", "[::1]:65535"] {
            assert_eq!(address_fault(good), None, "{good}");
        }
        for bad in ["", "a", "a:", "a:0", "a:65536", "a:http", "::1:80", "a_b:80", ":80"] {
            assert!(address_fault(bad).is_some(), "{bad}");
        }
    }
}
