//! A percentage as written, compared bit by bit so that it can be part of a key.

#[derive(Debug, Clone, Copy)]
pub struct Percentage(pub f64);

impl PartialEq for Percentage {
    fn eq(&self, other: &Self) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Percentage {}

impl std::hash::Hash for Percentage {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}
