//! Releases of Istio's proxy, as far as configuration depends on them: unsupported fields are not sent to older ones.

/// Which fields a proxy supports; each release supports everything that earlier ones do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    Older,
    V1_28,
    V1_29,
    /// This one, any later one, and a proxy that does not report its version.
    V1_30,
}

impl Release {
    /// From `ISTIO_VERSION`, such as `1.29.3` or `release-1.28`.
    pub fn of(version: &str) -> Self {
        let version = version.strip_prefix("release-").unwrap_or(version);
        match numbers(version) {
            None => Self::V1_30,
            Some(version) if version >= (1, 30) => Self::V1_30,
            Some((1, 29)) => Self::V1_29,
            Some((1, 28)) => Self::V1_28,
            Some(_) => Self::Older,
        }
    }
}

/// `None`: not a release, such as a build of a branch.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let (major, rest) = version.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok().filter(|major| *major > 0)?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_versions_count_as_the_latest() {
        for (version, release) in [
            ("1.27.3", Release::Older),
            ("1.28", Release::V1_28),
            ("release-1.29", Release::V1_29),
            ("1.29-alpha.abc", Release::V1_29),
            ("1.30.0", Release::V1_30),
            ("2.0.1", Release::V1_30),
            ("", Release::V1_30),
            ("master-abc", Release::V1_30),
            ("1.x", Release::V1_30),
        ] {
            assert_eq!(Release::of(version), release, "{version}");
        }
    }
}
