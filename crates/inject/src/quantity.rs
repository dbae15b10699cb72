//! Resource quantities of Kubernetes: `100m`, `1.5Gi`, `2e3`.

use std::str::FromStr;

/// A quantity that can be parsed; its amount is not needed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Quantity, QuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let length = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(length);
        if number.is_empty() || number.matches('.').count() > 1 || number == "." {
            return Err(QuantityError::Format);
        }
        let letters = suffix.trim_start_matches(|c: char| "eEinumkKMGTP".contains(c));
        let digits = letters.strip_prefix(['+', '-']).unwrap_or(letters);
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(QuantityError::Format);
        }
        if !is_suffix(suffix) {
            return Err(QuantityError::Suffix);
        }
        Ok(Quantity)
    }
}

fn is_suffix(suffix: &str) -> bool {
    match suffix.strip_prefix(['e', 'E']) {
        Some(exponent) if !exponent.is_empty() => exponent.parse::<i32>().is_ok(),
        _ => matches!(
            suffix,
            "" | "n" | "u" | "m" | "k" | "M" | "G" | "T" | "P" | "E" | "Ki" | "Mi" | "Gi" | "Ti" | "Pi" | "Ei"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_does() {
        for good in ["1", "100m", "1.5Gi", "-2", "+.5", "1e3", "2E", "5."] {
            assert_eq!(good.parse(), Ok(Quantity), "{good}");
        }
        for (bad, error) in [
            ("lots", QuantityError::Format),
            ("", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1KiB", QuantityError::Format),
            ("1mm", QuantityError::Suffix),
            ("1.2.3", QuantityError::Format),
        ] {
            assert_eq!(bad.parse::<Quantity>(), Err(error), "{bad}");
        }
    }
}
