//! Paths as the HTTP connection manager normalizes them before anything matches.

use wire::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use wire::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::PathWithEscapedSlashesAction as EscapedSlashes;

/// `Err`: the answer of the connection manager.
pub(crate) enum PathReply {
    BadRequest,
    Redirect(String),
}

/// `path` may have a query, which stays as it is.
pub(crate) fn normalized(manager: &HttpConnectionManager, path: &str) -> Result<String, PathReply> {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let (mut path, query) = (path[..end].to_owned(), &path[end..]);
    let lower = path.to_ascii_lowercase();
    if lower.contains("%2f") || lower.contains("%5c") {
        let unescaped = || replaced(&replaced(&path, "%2f", "/"), "%5c", "\\");
        match EscapedSlashes::try_from(manager.path_with_escaped_slashes_action) {
            Ok(EscapedSlashes::RejectRequest) => return Err(PathReply::BadRequest),
            Ok(EscapedSlashes::UnescapeAndRedirect) => return Err(PathReply::Redirect(unescaped() + query)),
            Ok(EscapedSlashes::UnescapeAndForward) => path = unescaped(),
            _ => {}
        }
    }
    if manager.normalize_path.as_ref().is_some_and(|it| it.value) {
        path = without_dots(&path.replace('\\', "/"));
    }
    if manager.merge_slashes {
        while path.contains("//") {
            path = path.replace("//", "/");
        }
    }
    Ok(path + query)
}

/// In any case of the letters.
fn replaced(text: &str, escaped: &str, by: &str) -> String {
    text.replace(escaped, by).replace(&escaped.to_ascii_uppercase(), by)
}

/// As RFC 3986 removes dot segments; a dot may be percent-encoded.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        match replaced(segment, "%2e", ".").as_str() {
            "." => kept.extend(is_last.then_some("")),
            ".." => {
                kept.pop();
                kept.extend(is_last.then_some(""));
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use wire::google::protobuf::BoolValue;

    use super::*;

    #[test]
    fn removes_dots_and_keeps_the_query() {
        let manager = HttpConnectionManager { normalize_path: Some(BoolValue { value: true }), ..Default::default() };
        let check =
            |path: &str, want: &str| assert_eq!(normalized(&manager, path).ok().as_deref(), Some(want), "{path}");
        check("/a/../b?x=/../", "/b?x=/../");
        check("/a/./b/..", "/a/");
        check("/%2E%2e/a", "/a");
        check("//a", "//a");
    }
}
