//! URLs as istiod accepts them, which is as Go parses them. Each function returns an error text.

/// The URL of a JWKS.
pub(super) fn http_fault(url: &str) -> Option<String> {
    match scheme(url) {
        Some((scheme, rest)) if is_http(scheme) => rest_fault(url, rest),
        _ => Some(format!("{url:?} is not a URL to fetch from; write https://host/path")),
    }
}

/// The URL of code; without a scheme it is an image.
pub(super) fn code_fault(url: &str) -> Option<String> {
    match scheme(url) {
        Some((scheme, _)) if is_http(scheme) || ["oci", "file"].contains(&scheme.to_ascii_lowercase().as_str()) => {
            // The host is not checked: Go parses the whole as a path if it is invalid.
            rest_fault(url, "")
        }
        Some((scheme, _)) => Some(format!("{scheme:?} is not a scheme for code; use oci, https, http or file")),
        None if url.is_empty() => Some("it is missing; name the image or the address of the code".to_owned()),
        None => rest_fault(url, &format!("//{}", url.trim_start_matches('/'))),
    }
}

fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// The part before the first colon, if it is a valid scheme, and the rest.
fn scheme(url: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = url.split_once(':')?;
    let good = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    (scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.bytes().all(good)).then_some((scheme, rest))
}

/// Host, port, and percent-encoding.
fn rest_fault(url: &str, rest: &str) -> Option<String> {
    let authority = rest.strip_prefix("//").map_or("", |rest| rest.split(['/', '?', '#']).next().unwrap_or(rest));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let after_address = host.rsplit_once(']').map_or(host, |(_, after)| after);
    let port = after_address.rsplit_once(':').map_or("", |(_, port)| port);
    let bad_host =
        host.bytes().any(|b| b <= b' ' || b"\"<>^`{|}\\".contains(&b)) || !port.bytes().all(|b| b.is_ascii_digit());
    let control = url.bytes().any(|b| b < b' ' || b == 0x7f);
    (bad_host || control || has_bad_escape(url))
        .then(|| format!("{url:?} is not a URL; write it like https://host:8080/path"))
}

fn has_bad_escape(url: &str) -> bool {
    let hex = |digits: &str| digits.bytes().take_while(u8::is_ascii_hexdigit).count() >= 2;
    url.split('%').skip(1).any(|after| !hex(after.get(..2).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_code() {
        for good in ["https://a.com/x", "http://a.com:80", "HTTP://[::1]:80/a b?%41"] {
            assert_eq!(http_fault(good), None, "{good}");
        }
        for bad in ["", "a.com", "ftp://a", "https://a:x/", "https://a b/", "https://a/%zz", "https://a/\n"] {
            assert!(http_fault(bad).is_some(), "{bad}");
        }
        for good in ["oci://a/b:1", "docker.io/a/b:1", "file:///a.wasm", "/a", "https://a/b.wasm"] {
            assert_eq!(code_fault(good), None, "{good}");
        }
        for bad in ["", "ftp://a", "localhost:5000/a", "a b/c"] {
            assert!(code_fault(bad).is_some(), "{bad}");
        }
    }
}
