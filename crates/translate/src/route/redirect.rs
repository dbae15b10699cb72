//! Responses of the proxy itself: redirects and direct responses.

use config::kinds::virtual_service::{HttpBody, HttpDirectResponse, HttpRedirect, RedirectPort, RedirectPortSelection};
use wire::envoy::config::core::v3::{DataSource, data_source::Specifier};
use wire::envoy::config::route::v3::{
    DirectResponseAction, RedirectAction,
    redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
};

use super::client::Client;

/// `None`: an invalid redirect status.
pub(super) fn redirect(redirect: &HttpRedirect, client: &Client<'_>) -> Option<RedirectAction> {
    let code = match redirect.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };
    let scheme = Some(redirect.scheme.clone()).filter(|scheme| !scheme.is_empty());
    Some(RedirectAction {
        host_redirect: redirect.authority.clone(),
        port_redirect: port(redirect, client),
        response_code: code.into(),
        scheme_rewrite_specifier: scheme.map(SchemeRewriteSpecifier::SchemeRedirect),
        path_rewrite_specifier: Some(PathRewriteSpecifier::PathRedirect(redirect.uri.clone())),
        ..RedirectAction::default()
    })
}

/// 0: the scheme's default port.
fn port(redirect: &HttpRedirect, client: &Client<'_>) -> u32 {
    let port = match redirect.port {
        None | Some(RedirectPort::Derived(RedirectPortSelection::FromProtocolDefault)) => 0,
        Some(RedirectPort::Derived(RedirectPortSelection::FromRequestPort)) => client.port.into(),
        Some(RedirectPort::Number(port)) => port,
    };
    let scheme = if redirect.scheme.is_empty() { client.scheme() } else { &redirect.scheme };
    match (port, scheme) {
        (80, "http") | (443, "https") => 0,
        (65_536.., _) => 0,
        _ => port,
    }
}

/// `None`: an invalid HTTP status.
pub(super) fn direct_response(response: &HttpDirectResponse) -> Option<DirectResponseAction> {
    if !(200..600).contains(&response.status) {
        return None;
    }
    let body = response.body.as_ref().map(|body| match body {
        HttpBody::Empty => None,
        HttpBody::String(text) => Some(Specifier::InlineString(text.clone())),
        HttpBody::Bytes(bytes) => Some(Specifier::InlineBytes(bytes.0.clone())),
    });
    let body = body.flatten().map(|specifier| DataSource { specifier: Some(specifier), ..DataSource::default() });
    Some(DirectResponseAction { status: response.status, body, ..DirectResponseAction::default() })
}
