//! From the fields of a header block to a request: what HTTP/2 asks of them is checked here. Decoding is elsewhere.

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header, uri};

/// The fields of one block, as they come.
#[derive(Default)]
pub(crate) struct Fields {
    method: Option<Method>,
    scheme: Option<uri::Scheme>,
    authority: Option<uri::Authority>,
    path: Option<uri::PathAndQuery>,
    headers: HeaderMap,
    malformed: bool,
}

/// Of what the peer promised to send.
pub(crate) struct Opened {
    pub(crate) request: Request<()>,
    pub(crate) length: Option<u64>,
}

impl Fields {
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        let added =
            if name.first() == Some(&b':') { self.add_pseudo(name, value) } else { self.add_header(name, value) };
        self.malformed |= added.is_none();
    }

    /// `None`: it may not stand here.
    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        if !self.headers.is_empty() {
            return None;
        }
        match name {
            b":method" => first(&mut self.method, Method::from_bytes(value).ok()?),
            b":scheme" => first(&mut self.scheme, uri::Scheme::try_from(value).ok()?),
            b":authority" => first(&mut self.authority, uri::Authority::try_from(value).ok()?),
            b":path" if !value.is_empty() => first(&mut self.path, uri::PathAndQuery::try_from(value).ok()?),
            _ => None,
        }
    }

    fn add_header(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        // Everything about the connection itself is said by frames.
        const OF_CONNECTIONS: [&[u8]; 5] =
            [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
        if name.iter().any(u8::is_ascii_uppercase)
            || OF_CONNECTIONS.contains(&name)
            || (name == b"te" && value != b"trailers")
        {
            return None;
        }
        self.headers.append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
        Some(())
    }

    /// `None`: it is no request.
    pub(crate) fn request(self) -> Option<Opened> {
        let Fields {
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
        let length = match headers.get(header::CONTENT_LENGTH) {
            Some(length) => Some(length.to_str().ok()?.parse().ok()?),
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
        Some(Opened { request, length })
    }

    /// Whether they may stand at the end of a request.
    pub(crate) fn are_trailers(&self) -> bool {
        let Fields { method: None, scheme: None, authority: None, path: None, malformed: false, .. } = self else {
            return false;
        };
        true
    }
}

fn first<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    let free = slot.is_none();
    *slot = Some(value);
    free.then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: [(&str, &str); 4] = [(":method", "POST"), (":scheme", "http"), (":authority", "a:1"), (":path", "/x")];

    fn fields(of: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        for (name, value) in of {
            fields.add(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    #[test]
    fn a_request_is_what_its_fields_say() {
        let more = [("te", "trailers"), ("cookie", "a"), ("cookie", "b"), ("content-length", "7")];
        let Opened { request, length } = fields(&[&CALL[..], &more].concat()).request().expect("a request");
        assert_eq!((request.method(), &*request.uri().to_string()), (&Method::POST, "http://a:1/x"));
        assert_eq!((request.headers().get_all("cookie").iter().count(), length), (2, Some(7)));
        let without_host = [CALL[0], CALL[1], CALL[3]];
        assert_eq!(fields(&without_host).request().expect("a request").request.uri(), "/x");
    }

    #[test]
    fn what_is_no_request_is_none() {
        for without in [0, 1, 3] {
            let mut few = CALL.to_vec();
            few.remove(without);
            assert!(fields(&few).request().is_none(), "without {}", CALL[without].0);
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
            assert!(fields(&[&CALL[..], &[wrong]].concat()).request().is_none(), "{wrong:?}");
        }
        assert!(fields(&[CALL[0], ("x", "y"), CALL[1], CALL[2], CALL[3]]).request().is_none(), "after a header");
        assert!(fields(&[CALL[0], CALL[1], CALL[2], (":path", "")]).request().is_none());
    }

    #[test]
    fn trailers_have_no_pseudo_headers() {
        assert!(fields(&[("grpc-status", "0")]).are_trailers());
        assert!(!fields(&[("x", "y"), (":path", "/")]).are_trailers());
    }
}
