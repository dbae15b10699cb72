//! How fast pushes converged over the last minutes: ACKs by the time since their change, in columns of time. Recorded always, at the cost of one
//! histogram read per column, so that somebody who opens the console because of an incident sees how it began.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;

pub(crate) const COLUMN: Duration = Duration::from_secs(15);
const COLUMNS: usize = 60;

#[derive(Default)]
pub(crate) struct ConvergenceHistory(Mutex<Recorded>);

#[derive(Default)]
struct Recorded {
    /// Cumulative counts of the end of the last column. Empty: nothing was recorded yet.
    before: Vec<(f64, u64)>,
    columns: VecDeque<Column>,
}

#[derive(Clone, Serialize)]
struct Column {
    /// Unix seconds: its end.
    at: u64,
    /// ACKs in each bucket, not cumulative.
    counts: Vec<u64>,
}

/// The page's form of it.
#[derive(Serialize)]
pub(crate) struct HeatMap {
    column_seconds: u64,
    /// Upper bounds of the buckets in seconds; the last has none.
    bounds: Vec<f64>,
    columns: Vec<Column>,
}

impl ConvergenceHistory {
    /// `counts`: cumulative, as a histogram has them.
    pub(crate) fn record(&self, now: SystemTime, counts: Vec<(f64, u64)>) {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut recorded.before, counts);
        if before.len() != recorded.before.len() {
            return;
        }
        let added: Vec<u64> =
            recorded.before.iter().zip(&before).map(|((_, now), (_, before))| now.saturating_sub(*before)).collect();
        let below = [0].into_iter().chain(added.iter().copied());
        let counts = added.iter().zip(below).map(|(up_to, below)| up_to.saturating_sub(below)).collect();
        let at = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        recorded.columns.push_back(Column { at, counts });
        if recorded.columns.len() > COLUMNS {
            recorded.columns.pop_front();
        }
    }

    pub(crate) fn heat_map(&self) -> HeatMap {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        HeatMap {
            column_seconds: COLUMN.as_secs(),
            bounds: recorded.before.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
            columns: recorded.columns.iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_acks_of_its_time_by_bucket() {
        let history = ConvergenceHistory::default();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        history.record(at(15), vec![(0.1, 5), (1.0, 5), (f64::INFINITY, 6)]);
        history.record(at(30), vec![(0.1, 7), (1.0, 10), (f64::INFINITY, 11)]);
        let map = history.heat_map();
        assert_eq!((map.bounds, map.columns.len()), (vec![0.1, 1.0], 1));
        assert_eq!((map.columns[0].at, &map.columns[0].counts[..]), (30, &[2, 3, 0][..]));
        for column in 3..100 {
            history.record(at(15 * column), vec![(0.1, 7), (1.0, 10), (f64::INFINITY, 11)]);
        }
        assert_eq!(history.heat_map().columns.len(), COLUMNS);
    }
}
