//! Percentages as Envoy fractions, truncated like istiod's.

use config::kinds::virtual_service::Percent;
use wire::envoy::config::core::v3::RuntimeFractionalPercent;
use wire::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};

pub(crate) fn precise(percent: Percent) -> FractionalPercent {
    // The cast saturates for values out of range.
    FractionalPercent { numerator: (percent.value * 10_000.0) as u32, denominator: DenominatorType::Million.into() }
}

pub(crate) fn whole(percent: u32) -> FractionalPercent {
    FractionalPercent { numerator: percent, denominator: DenominatorType::Hundred.into() }
}

pub(crate) fn always(fraction: FractionalPercent) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent { default_value: Some(fraction), ..RuntimeFractionalPercent::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncates_fractions() {
        let numerator = |value| precise(Percent { value }).numerator;
        assert_eq!([0.57, 1.13, 2.01, 12.5].map(numerator), [5699, 11299, 20099, 125_000]);
        assert_eq!(numerator(-1.0), 0);
    }
}
