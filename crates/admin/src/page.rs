//! The response of a page, over HTTP or over a debug stream.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tracing::error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    kind: &'static str,
    pub(crate) body: String,
}

impl Page {
    pub(crate) fn text(status: StatusCode, body: &str) -> Page {
        Page { status, kind: "text/plain; charset=utf-8", body: body.to_owned() }
    }

    pub(crate) fn html(body: String) -> Page {
        Page { status: StatusCode::OK, kind: "text/html; charset=utf-8", body }
    }

    pub(crate) fn json(pretty: bool, value: &impl Serialize) -> Page {
        let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        match text {
            Ok(body) => Page { status: StatusCode::OK, kind: "application/json", body },
            Err(error) => {
                error!(%error, "cannot serialize a page");
                Page::text(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n")
            }
        }
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = (self.status, [(header::CONTENT_TYPE, self.kind)], self.body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
