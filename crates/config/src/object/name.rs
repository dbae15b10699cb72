//! Names of objects, as Kubernetes allows them.

use crate::kind::Kind;

/// Why a name is invalid. `None`: it is valid.
pub(super) fn fault(kind: Kind, name: &str) -> Option<String> {
    match kind {
        Kind::Namespace | Kind::Service => label_fault(name),
        _ => subdomain_fault(name),
    }
}

/// A DNS label of RFC 1123.
pub(super) fn label_fault(name: &str) -> Option<String> {
    if name.len() > 63 {
        return Some(format!("the name has {} characters; at most 63 are allowed", name.len()));
    }
    (!is_label(name)).then(|| {
        format!("{name:?} cannot be a name; use lower-case letters, digits and -, with a letter or digit at both ends")
    })
}

fn subdomain_fault(name: &str) -> Option<String> {
    if name.len() > 253 {
        return Some(format!("the name has {} characters; at most 253 are allowed", name.len()));
    }
    (!name.split('.').all(is_label)).then(|| {
        format!(
            "{name:?} cannot be a name; use lower-case letters, digits, - and ., with a letter or digit at both ends"
        )
    })
}

fn is_label(part: &str) -> bool {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let ends = part.bytes().next().is_some_and(legal) && part.bytes().next_back().is_some_and(legal);
    ends && part.bytes().all(|b| legal(b) || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_names() {
        for good in ["a", "a-b", "1a", "a.b-c.d", &"a".repeat(253)] {
            assert_eq!(fault(Kind::Pod, good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a_b", "a..b", ".a", "a/b", "é", &"a".repeat(254)] {
            assert!(fault(Kind::Pod, bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn services_and_namespaces_have_no_dots() {
        assert!(fault(Kind::Service, "a.b").is_some());
        assert!(fault(Kind::Namespace, &"a".repeat(64)).is_some());
        assert_eq!(fault(Kind::Namespace, &"a".repeat(63)), None);
    }
}
