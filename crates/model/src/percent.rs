//! A share of a hundred, as written: exact, so that it can be part of a key.

#[derive(Debug, Clone, Copy)]
pub struct Percent(pub f64);

impl PartialEq for Percent {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Percent {}

impl std::hash::Hash for Percent {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
