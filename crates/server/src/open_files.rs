//! The limit of open files: raised as far as the process may, with a reserve for everything but streams. Without one, connections of proxies
//! could leave none for probes.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::warn;

/// For the other ports, the API server, files and pipes.
const RESERVED: u64 = 1024;

/// How many connections of proxies may be open.
pub(crate) fn max_connections() -> usize {
    let files = match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, hard)) if soft < hard => match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
            Ok(()) => hard,
            Err(error) => {
                warn!(%error, soft, hard, "the limit of open files cannot be raised");
                soft
            }
        },
        Ok((soft, _)) => soft,
        Err(_) => return usize::MAX,
    };
    usize::try_from(connections(files)).unwrap_or(usize::MAX)
}

fn connections(files: u64) -> u64 {
    files - RESERVED.min(files / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_open_files_to_others() {
        assert_eq!([100, 1024, 4096, u64::MAX].map(connections), [50, 512, 3072, u64::MAX - 1024]);
        assert!(max_connections() > 0);
    }
}
