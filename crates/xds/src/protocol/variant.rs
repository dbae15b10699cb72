//! The two variants of the xDS protocol.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// State of the world: a request names all that is wanted, a response of clusters or listeners holds all there is.
    Sotw,
    /// Incremental: requests and responses hold differences.
    Delta,
}
