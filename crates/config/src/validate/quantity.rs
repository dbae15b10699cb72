//! Durations and percentages as istiod accepts them. Each function returns an error text.

use crate::duration::Duration;
use crate::kinds::virtual_service::Percent;

/// At least a millisecond, in whole milliseconds.
pub(super) fn duration_fault(time: Duration) -> Option<String> {
    if time < Duration::from_millis(1) {
        return Some(format!("{time} is too short; use 1ms or more, or remove the field"));
    }
    (time.nanos % 1_000_000 != 0).then(|| format!("{time} is too precise; use whole milliseconds"))
}

pub(super) fn whole_percent_fault(percent: i32) -> Option<String> {
    (!(0..=100).contains(&percent)).then(|| format!("{percent} is not a percentage; use 0 to 100"))
}

pub(super) fn percent_fault(percent: Percent) -> Option<String> {
    let Percent { value } = percent;
    (!(0.0..=100.0).contains(&value)).then(|| format!("{value} is not a percentage; use 0 to 100"))
}

/// As `percent_fault`; values below one millionth are rounded to zero.
pub(super) fn fine_percent_fault(percent: Percent) -> Option<String> {
    let Percent { value } = percent;
    percent_fault(percent).or_else(|| {
        (value > 0.0 && value < 0.0001).then(|| format!("{value} is too small a percentage; use 0, or 0.0001 or more"))
    })
}

pub(super) fn count_fault(count: i32) -> Option<String> {
    (count < 0).then(|| format!("{count} is less than nothing; use 0 or more"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, good) in
            [("1ms", true), ("1h", true), ("0s", false), ("-1s", false), ("999us", false), ("1.0005s", false)]
        {
            assert_eq!(duration_fault(text.parse().unwrap()).is_none(), good, "{text}");
        }
    }

    #[test]
    fn percentages() {
        let fine = |value| fine_percent_fault(Percent { value }).is_none();
        assert!(fine(0.0) && fine(0.0001) && fine(100.0));
        assert!(!fine(0.00009) && !fine(-1.0) && !fine(100.5) && !fine(f64::NAN));
        assert!(whole_percent_fault(100).is_none() && whole_percent_fault(101).is_some());
    }
}
