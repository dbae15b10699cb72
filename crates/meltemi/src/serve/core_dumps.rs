//! No core dumps: they would hold the private keys of the mesh.

use nix::sys::{
    prctl::set_dumpable,
    resource::{Resource, setrlimit},
};
use tracing::warn;

/// The limit is what files obey. Where the kernel pipes dumps into a program it is not looked at, which the attribute sees to; with that,
/// nobody but root reads our memory by `/proc` or a debugger either.
pub(crate) fn disable() {
    for (what, done) in
        [("RLIMIT_CORE", setrlimit(Resource::RLIMIT_CORE, 0, 0)), ("PR_SET_DUMPABLE", set_dumpable(false))]
    {
        if let Err(error) = done {
            warn!(what, %error, "core dumps are not disabled; they would hold private keys");
        }
    }
}
