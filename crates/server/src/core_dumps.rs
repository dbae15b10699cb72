//! No core dumps: they would hold the private keys of the mesh.

use nix::sys::{
    prctl::set_dumpable,
    resource::{Resource, setrlimit},
};
use tracing::warn;

/// The limit holds for dumps into files. The kernel ignores it where it pipes dumps into a program, which the attribute prevents; the
/// attribute also keeps everybody but root from reading our memory through `/proc` or a debugger.
pub fn disable() {
    for (what, done) in
        [("RLIMIT_CORE", setrlimit(Resource::RLIMIT_CORE, 0, 0)), ("PR_SET_DUMPABLE", set_dumpable(false))]
    {
        if let Err(error) = done {
            warn!(what, %error, "core dumps are not disabled; they would hold private keys");
        }
    }
}
