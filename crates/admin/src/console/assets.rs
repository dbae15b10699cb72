//! The built console (folder `console`), compressed: `cargo xtask console build` writes it. The names of script and style end with their
//! content hash in the shell's links, so that browsers keep them; the shell is asked for each time.

use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

const SHELL: &[u8] = include_bytes!("../../assets/index.html.gz");
const SCRIPT: &[u8] = include_bytes!("../../assets/console.js.gz");
const STYLE: &[u8] = include_bytes!("../../assets/console.css.gz");

/// Nothing is loaded from elsewhere, nothing is embedded, and no text becomes script. Images: the favicon is in the shell.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
const ONCE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
const ALWAYS: HeaderValue = HeaderValue::from_static("no-cache");

pub(super) fn shell() -> Response {
    compressed(SHELL, "text/html; charset=utf-8", ALWAYS)
}

/// `uri`: with the content hash, it is for ever.
pub(super) fn file(name: &str, uri: &Uri) -> Response {
    let caching = if uri.query().is_some_and(|query| query.starts_with("v=")) { ONCE } else { ALWAYS };
    match name {
        "console.js" => compressed(SCRIPT, "text/javascript; charset=utf-8", caching),
        "console.css" => compressed(STYLE, "text/css; charset=utf-8", caching),
        _ => (StatusCode::NOT_FOUND, "the console has no such file\n").into_response(),
    }
}

/// Every browser takes gzip; for others there are the commands.
fn compressed(bytes: &'static [u8], kind: &'static str, caching: HeaderValue) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_ENCODING, HeaderValue::from_static("gzip")),
        (header::CACHE_CONTROL, caching),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, bytes).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_assets_are_below_300_kb_compressed() {
        assert!(SHELL.len() + SCRIPT.len() + STYLE.len() < 300_000);
    }
}
