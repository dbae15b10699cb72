//! Names and values of HTTP headers as istiod accepts them. Each function returns an error text.

/// For a matched header.
pub(super) fn matched_name_fault(name: &str) -> Option<String> {
    let pseudo = matches!(name, ":method" | ":scheme" | ":authority" | ":path" | ":status");
    if is_claim(name) || pseudo { None } else { token_fault(name) }
}

/// For a header in a CORS policy.
pub(super) fn cors_name_fault(name: &str) -> Option<String> {
    if name == "*" { None } else { token_fault(name) }
}

/// An HTTP token.
fn token_fault(name: &str) -> Option<String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    fault_unless(name, name.bytes().all(token))
}

/// For a header that receives a claim of a token.
pub(super) fn strict_name_fault(name: &str) -> Option<String> {
    fault_unless(name, name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'))
}

/// For a header of a probe.
pub(super) fn probe_name_fault(name: &str) -> Option<String> {
    fault_unless(name, name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
}

fn fault_unless(name: &str, good: bool) -> Option<String> {
    if name.is_empty() {
        return Some("a header needs a name".to_owned());
    }
    (!good).then(|| format!("{name:?} is not the name of a header; use letters, digits and -"))
}

/// For a header that is set on a request. The authority may be.
pub(super) fn set_on_request_fault(name: &str) -> Option<String> {
    if is_authority(name) { None } else { changed_name_fault(name) }
}

/// For a header that is removed, or set on a response.
pub(super) fn changed_name_fault(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("a header needs a name".to_owned());
    }
    let fixed = name.starts_with(':') || name.eq_ignore_ascii_case("host");
    fixed.then(|| format!("{name:?} cannot be changed here; to send another host, use rewrite.authority"))
}

pub(super) fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

/// `@request.auth.claims.a.b` or `@request.auth.claims[a][b]`: a claim of a token instead of a header.
pub fn is_claim(name: &str) -> bool {
    const CLAIMS: &str = "@request.auth.claims";
    let Some((prefix, rest)) = name.split_at_checked(CLAIMS.len()) else { return false };
    let named = rest.starts_with('.') && rest.len() > 1;
    let bracketed = rest.starts_with('[') && rest.ends_with(']') && rest.len() > 2;
    prefix.eq_ignore_ascii_case(CLAIMS) && (named || bracketed)
}

/// For a header value: text with Envoy's `%COMMANDS%`.
pub(super) fn value_fault(value: &str) -> Option<String> {
    if value.bytes().any(|b| b == 0x7f || b < 0x20 && b != b'\t') {
        return Some(format!("{value:?} has control characters, which headers cannot hold; remove them"));
    }
    let mut state = Reading::Text;
    let mut bytes = value.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let doubled = byte == b'%' && state == Reading::Text && bytes.next_if_eq(&b'%').is_some();
        let escaped = byte == b'\\' && state == Reading::Argument;
        if doubled {
            continue;
        }
        if escaped && bytes.next().is_none() {
            return Some(format!("{value:?} ends in a single \\; double it"));
        }
        state = match state.after(byte) {
            Some(state) => state,
            None => {
                return Some(format!("{value:?} has a command that cannot be read; write %NAME% or %NAME(argument)%"));
            }
        };
    }
    (state != Reading::Text)
        .then(|| format!("{value:?} has a % without its partner; write %% for a plain percent sign"))
}

/// The state of Envoy's parser of header values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Text,
    /// After `%`.
    Command,
    /// After `(`.
    Arguments,
    /// In a list of arguments, before a quote.
    ListItem,
    Argument,
    /// In a list, after a quoted argument.
    ListComma,
    /// After `]`.
    ListEnd,
    /// After `)`.
    CommandEnd,
}

impl Reading {
    /// `None`: Envoy rejects the byte here.
    fn after(self, byte: u8) -> Option<Reading> {
        Some(match (self, byte) {
            (Reading::Text, b'%') => Reading::Command,
            (Reading::Command | Reading::CommandEnd, b'%') => Reading::Text,
            (Reading::Command, b'(') => Reading::Arguments,
            (Reading::Arguments, b'[') | (Reading::ListComma, b',') => Reading::ListItem,
            (Reading::Arguments, byte) if byte != b' ' => Reading::Argument,
            (Reading::ListItem, b'"') => Reading::Argument,
            (Reading::Argument, b'"') => Reading::ListComma,
            (Reading::ListComma, b']') => Reading::ListEnd,
            (Reading::Argument | Reading::ListEnd, b')') => Reading::CommandEnd,
            (Reading::Text | Reading::Command | Reading::Argument, _) | (_, b' ') => self,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fault: fn(&str) -> Option<String>, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(fault(text), None, "{text}");
        }
        for text in bad {
            assert!(fault(text).is_some(), "{text}");
        }
    }

    #[test]
    fn names() {
        check(
            matched_name_fault,
            &["x-a", ":path", "@request.auth.claims.sub"],
            &["", "a b", ":x", "@request.auth.claims"],
        );
        check(cors_name_fault, &["*", "x-a"], &["", "a:b"]);
        check(strict_name_fault, &["x_a"], &["", "x.a"]);
        check(probe_name_fault, &["x-a"], &["", "x_a"]);
        check(set_on_request_fault, &["x-a", "Host", ":authority"], &["", ":path"]);
        check(changed_name_fault, &["x-a"], &["", "host", ":authority"]);
    }

    #[test]
    fn claims() {
        let of = |rest: &str| is_claim(&format!("@Request.auth.claims{rest}"));
        assert!(of(".sub") && of("[a][b]"));
        assert!(!of("") && !of(".") && !of("[]") && !of("-x"));
    }

    #[test]
    fn values_with_commands() {
        check(
            value_fault,
            &[
                "",
                "plain\tvalue",
                "100%%",
                "%HOSTNAME%",
                "a %REQ(x)% b",
                "%REQ( [\"a\" , \"b\"] )%",
                "%DYNAMIC_METADATA([\"a\",\"b\"])%",
                "%REQ(a\\))%",
            ],
            &[
                "a\u{1}b",
                "a\nb",
                "100%",
                "abc%123",
                "%START_TIME%%",
                "%REQ(x",
                "%REQ([x])%",
                "%REQ([\"a\" \"b\"])%",
                "%REQ([\"a\"]x)%",
                "%REQ(x)y%",
                "%REQ(\\))%",
                "%REQ(\\",
            ],
        );
    }
}
