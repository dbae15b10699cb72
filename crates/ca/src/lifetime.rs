//! The lifetime of workload certificates: as requested, within the configured limits.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// For callers without a request: DEFAULT_WORKLOAD_CERT_TTL.
    pub default: Duration,
    /// MAX_WORKLOAD_CERT_TTL.
    pub max: Duration,
    /// PILOT_WORKLOAD_CERT_TTL: for all callers, whatever they request.
    pub fixed: Option<Duration>,
}

impl Default for Lifetimes {
    fn default() -> Lifetimes {
        const HOUR: u64 = 3600;
        Lifetimes { default: Duration::from_secs(24 * HOUR), max: Duration::from_secs(2160 * HOUR), fixed: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the requested lifetime of {asked} s is above the greatest of {max} s")]
pub struct LifetimeTooLong {
    asked: i64,
    max: u64,
}

impl Lifetimes {
    /// `asked`: seconds, as on the wire; zero or negative: the default.
    pub fn of(&self, asked: i64) -> Result<Duration, LifetimeTooLong> {
        if let Some(fixed) = self.fixed {
            return Ok(fixed);
        }
        let Some(wanted) = u64::try_from(asked).ok().filter(|seconds| *seconds > 0) else {
            return Ok(self.default.min(self.max));
        };
        let wanted = Duration::from_secs(wanted);
        if wanted > self.max {
            return Err(LifetimeTooLong { asked, max: self.max.as_secs() });
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_within_bounds() {
        let lifetimes = Lifetimes::default();
        assert_eq!(lifetimes.of(60), Ok(Duration::from_secs(60)));
        for none in [0, -1, i64::MIN] {
            assert_eq!(lifetimes.of(none), Ok(Duration::from_secs(86_400)));
        }
        for much in [2160 * 3600 + 1, i64::MAX] {
            assert!(lifetimes.of(much).is_err(), "{much}");
        }
    }

    #[test]
    fn the_setting_wins_over_the_caller() {
        let lifetimes = Lifetimes { fixed: Some(Duration::from_secs(48 * 3600)), ..Lifetimes::default() };
        for asked in [0, 60, i64::MAX] {
            assert_eq!(lifetimes.of(asked), Ok(Duration::from_secs(48 * 3600)));
        }
    }
}
