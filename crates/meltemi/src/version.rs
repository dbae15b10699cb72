//! What this build calls itself.

use serde_json::{Value, json};

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, given by whoever builds a release.
pub(crate) const REVISION: &str = match option_env!("MELTEMI_GIT_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// How the build was made, in istiod's words: `Clean` for a release, `Modified` for anything else.
const STATUS: &str = if option_env!("MELTEMI_GIT_REVISION").is_some() { "Clean" } else { "Modified" };

/// `version-revision-status`, the form that Kiali and istioctl read from `/version`.
pub(crate) fn dashed() -> String {
    format!("{VERSION}-{REVISION}-{STATUS}")
}

/// As `pilot-discovery version -o json` has it.
pub(crate) fn document() -> Value {
    json!({"clientVersion": {"version": VERSION, "revision": REVISION, "status": STATUS, "tag": VERSION}})
}
