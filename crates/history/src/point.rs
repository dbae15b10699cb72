//! A point in the history, as people name it: a push or a time.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use xds::Seq;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// After this push.
    Push(Seq),
    Time(SystemTime),
    /// So long before now.
    Ago(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{0:?} is neither the number of a push, nor a time like 2026-03-01T15:00:00Z, nor a duration before now like 90m"
)]
pub struct PointError(String);

/// Why the history has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownPoint {
    #[error("there was no push {0} yet")]
    NotYet(Seq),
    #[error("the history begins after push {push}, at {at}")]
    TooOld { push: Seq, at: String },
    #[error("the proxy was not connected then; it is known since push {0}")]
    NotConnected(Seq),
    #[error("what the proxy had then is no longer in the history")]
    Forgotten,
}

impl FromStr for Point {
    type Err = PointError;

    fn from_str(text: &str) -> Result<Point, PointError> {
        if let Ok(push) = text.parse() {
            return Ok(Point::Push(push));
        }
        if let Ok(at) = text.parse::<jiff::Timestamp>() {
            return Ok(Point::Time(at.into()));
        }
        let ago = text.parse::<config::duration::Duration>().ok();
        ago.filter(|ago| *ago >= config::duration::Duration::ZERO)
            .map(|ago| Point::Ago(ago.to_std()))
            .ok_or_else(|| PointError(text.to_owned()))
    }
}

/// RFC 3339, to the millisecond.
pub(crate) fn time_text(at: SystemTime) -> String {
    jiff::Timestamp::try_from(at).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushes_times_and_durations_are_points() {
        assert_eq!("41".parse(), Ok(Point::Push(41)));
        assert_eq!("90m".parse(), Ok(Point::Ago(Duration::from_secs(5400))));
        let at = "2026-03-01T15:00:00.5Z".parse::<Point>().expect("a time");
        assert!(matches!(at, Point::Time(at) if time_text(at) == "2026-03-01T15:00:00.500Z"));
        assert_eq!("2026-03-01T16:00:00.5+01:00".parse(), Ok(at));
        for wrong in ["", "yesterday", "-5m", "2026-03-01", "12:00"] {
            assert!(wrong.parse::<Point>().is_err(), "{wrong}");
        }
    }
}
