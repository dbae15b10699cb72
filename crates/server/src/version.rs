//! The version of this build.

use serde_json::{Value, json};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, set by release builds.
pub const REVISION: &str = match option_env!("MELTEMI_GIT_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// How the build was made, in istiod's words: `Clean` for a release, `Modified` for anything else.
const STATUS: &str = if option_env!("MELTEMI_GIT_REVISION").is_some() { "Clean" } else { "Modified" };

/// `version-revision-status`, the form that Kiali and istioctl read from `/version`.
pub fn dashed() -> String {
    format!("{VERSION}-{REVISION}-{STATUS}")
}

/// As `pilot-discovery version -o json` has it.
pub fn document() -> Value {
    json!({"clientVersion": {"version": VERSION, "revision": REVISION, "status": STATUS, "tag": VERSION}})
}
