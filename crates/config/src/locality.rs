//! The locality of a workload: region, zone, subzone.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::intern::intern_str;

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Locality {
    pub region: Arc<str>,
    pub zone: Arc<str>,
    pub subzone: Arc<str>,
}

impl Locality {
    /// With interned strings.
    #[must_use]
    pub fn shared(&self) -> Locality {
        let Locality { region, zone, subzone } = self;
        Locality { region: intern_str(region), zone: intern_str(zone), subzone: intern_str(subzone) }
    }

    pub fn is_empty(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.subzone.is_empty()
    }
}

/// `region/zone/subzone`; missing parts are empty, further ones are dropped.
impl FromStr for Locality {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Locality, Infallible> {
        let mut parts = text.split('/').map(intern_str);
        let mut next = || parts.next().unwrap_or_default();
        Ok(Locality { region: next(), zone: next(), subzone: next() })
    }
}

/// Without trailing empty parts.
impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.region)?;
        if !self.zone.is_empty() || !self.subzone.is_empty() {
            write!(f, "/{}", self.zone)?;
        }
        if !self.subzone.is_empty() {
            write!(f, "/{}", self.subzone)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locality_survives_writing_and_reading() {
        for text in ["", "r", "r/z", "r/z/s", "r//s", "/z"] {
            assert_eq!(text.parse::<Locality>().unwrap().to_string(), text);
        }
        assert_eq!("r/z/s/x".parse::<Locality>().unwrap().to_string(), "r/z/s");
        assert!(Locality::default().is_empty());
    }
}
