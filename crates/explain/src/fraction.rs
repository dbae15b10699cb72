//! Envoy's fractions, as percents.

use wire::envoy::r#type::v3::FractionalPercent;
use wire::envoy::r#type::v3::fractional_percent::DenominatorType;

pub(crate) fn percent(fraction: &FractionalPercent) -> f64 {
    let hundredths = match DenominatorType::try_from(fraction.denominator) {
        Ok(DenominatorType::TenThousand) => 100.0,
        Ok(DenominatorType::Million) => 10_000.0,
        _ => 1.0,
    };
    (f64::from(fraction.numerator) / hundredths).min(100.0)
}
