//! How much a count of trials says about all of them: the Wilson score interval at 95 %.

/// The quantile of the normal distribution for 95 %.
const Z: f64 = 1.959_964;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    pub(crate) rate: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// `None`: without trials nothing is known.
pub(crate) fn wilson(hits: u32, trials: u32) -> Option<Rate> {
    if trials == 0 {
        return None;
    }
    let (n, p, z2) = (f64::from(trials), f64::from(hits) / f64::from(trials), Z * Z);
    let centre = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    Some(Rate { rate: p, low: (centre - half).max(0.0), high: (centre + half).min(1.0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        let found = wilson(8, 10).unwrap();
        assert!((found.low - 0.490_2).abs() < 1e-3 && (found.high - 0.943_3).abs() < 1e-3, "{found:?}");
        let all = wilson(500, 500).unwrap();
        assert!((all.low - 0.992_4).abs() < 1e-3 && all.high > 0.999_999, "{all:?}");
        assert_eq!(wilson(0, 0), None);
    }
}
