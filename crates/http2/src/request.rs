//! From a field section to a request, with the validation of RFC 9113, 8.2 and 8.3. Decoding is in `hpack`.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, uri};

/// The fields of one header block, collected in order.
#[derive(Default)]
pub(crate) struct FieldSection {
    method: Option<Method>,
    scheme: Option<uri::Scheme>,
    authority: Option<uri::Authority>,
    path: Option<uri::PathAndQuery>,
    headers: HeaderMap,
    malformed: bool,
}

/// A request without its body.
pub(crate) struct RequestHead {
    pub(crate) request: Request<()>,
    pub(crate) content_length: Option<u64>,
}

impl FieldSection {
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        let added =
            if name.first() == Some(&b':') { self.add_pseudo(name, value) } else { self.add_header(name, value) };
        self.malformed |= added.is_none();
    }

    /// `None`: malformed, repeated, unknown, or after a regular field.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        if !self.headers.is_empty() {
            return None;
        }
        match name {
            b":method" => set_once(&mut self.method, Method::from_bytes(value).ok()?),
            b":scheme" => set_once(&mut self.scheme, uri::Scheme::try_from(value).ok()?),
            b":authority" => set_once(&mut self.authority, uri::Authority::try_from(value).ok()?),
            b":path" if !value.is_empty() => set_once(&mut self.path, uri::PathAndQuery::try_from(value).ok()?),
            _ => None,
        }
    }

    fn add_header(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        // Connection-specific header fields (RFC 9113, 8.2.2).
        const CONNECTION_SPECIFIC: [&[u8]; 5] =
            [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
        if name.iter().any(u8::is_ascii_uppercase)
            || CONNECTION_SPECIFIC.contains(&name)
            || (name == b"te" && value != b"trailers")
        {
            return None;
        }
        self.headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        Some(())
    }

    /// `None`: the request is malformed.
    pub(crate) fn into_request(self) -> Option<RequestHead> {
        let FieldSection {
            method: Some(method),
            scheme: Some(scheme),
            authority,
            path: Some(path),
            headers,
            malformed: false,
        } = self
        else {
            return None;
        };
        let content_length = match headers.get(header::CONTENT_LENGTH) {
            Some(content_length) => Some(content_length.to_str().ok()?.parse().ok()?),
            None => None,
        };
        let mut target = uri::Parts::default();
        if authority.is_some() {
            (target.scheme, target.authority) = (Some(scheme), authority);
        }
        target.path_and_query = Some(path);
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = Uri::from_parts(target).ok()?;
        *request.version_mut() = http::Version::HTTP_2;
        *request.headers_mut() = headers;
        Some(RequestHead { request, content_length })
    }

    /// Trailers have no pseudo-header fields.
    pub(crate) fn are_valid_trailers(&self) -> bool {
        let FieldSection { method: None, scheme: None, authority: None, path: None, malformed: false, .. } = self
        else {
            return false;
        };
        true
    }
}

fn set_once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    let free = slot.is_none();
    *slot = Some(value);
    free.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":authority", "a:1"), (":path", "/x")];

    fn fields(of: &[(&str, &str)]) -> FieldSection {
        let mut fields = FieldSection::default();
        for (name, value) in of {
            fields.add(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    #[test]
    fn fields_make_a_request() {
        let more = [("te", "trailers"), ("cookie", "a"), ("cookie", "b"), ("content-length", "7")];
        let RequestHead { request, content_length } =
            fields(&[&REQUEST[..], &more].concat()).into_request().expect("a request");
        assert_eq!((request.method(), &*request.uri().to_string()), (&Method::POST, "http://a:1/x"));
        assert_eq!((request.headers().get_all("cookie").iter().count(), content_length), (2, Some(7)));
        let without_host = [REQUEST[0], REQUEST[1], REQUEST[3]];
        assert_eq!(fields(&without_host).into_request().expect("a request").request.uri(), "/x");
    }

    #[test]
    fn malformed_requests_are_rejected() {
        for without in [0, 1, 3] {
            let mut few = REQUEST.to_vec();
            few.remove(without);
            assert!(fields(&few).into_request().is_none(), "without {}", REQUEST[without].0);
        }
        for wrong in [
            (":path", "/y"),
            (":status", "200"),
            (":protocol", "x"),
            ("X-Upper", "a"),
            ("connection", "close"),
            ("te", "gzip"),
            ("content-length", "many"),
            ("a b", "c"),
        ] {
            assert!(fields(&[&REQUEST[..], &[wrong]].concat()).into_request().is_none(), "{wrong:?}");
        }
        assert!(
            fields(&[REQUEST[0], ("x", "y"), REQUEST[1], REQUEST[2], REQUEST[3]]).into_request().is_none(),
            "after a header"
        );
        assert!(fields(&[REQUEST[0], REQUEST[1], REQUEST[2], (":path", "")]).into_request().is_none());
    }

    #[test]
    fn trailers_with_pseudo_header_fields_are_rejected() {
        assert!(fields(&[("grpc-status", "0")]).are_valid_trailers());
        assert!(!fields(&[("x", "y"), (":path", "/")]).are_valid_trailers());
    }
}
