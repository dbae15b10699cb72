//! Three-valued answers: what is not known about a request gives `Unknown`, with what it depends on.

use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Truth {
    Yes,
    No,
    /// It depends on these.
    Unknown(BTreeSet<String>),
}

impl Truth {
    pub(crate) fn unknown(input: impl Into<String>) -> Truth {
        Truth::Unknown(BTreeSet::from([input.into()]))
    }

    /// One false part makes the whole false, whatever is unknown about others.
    pub(crate) fn all(parts: impl IntoIterator<Item = Truth>) -> Truth {
        let mut unknown = BTreeSet::new();
        for part in parts {
            match part {
                Truth::Yes => {}
                Truth::No => return Truth::No,
                Truth::Unknown(inputs) => unknown.extend(inputs),
            }
        }
        if unknown.is_empty() { Truth::Yes } else { Truth::Unknown(unknown) }
    }

    pub(crate) fn any(parts: impl IntoIterator<Item = Truth>) -> Truth {
        Truth::all(parts.into_iter().map(Truth::negated)).negated()
    }

    pub(crate) fn negated(self) -> Truth {
        match self {
            Truth::Yes => Truth::No,
            Truth::No => Truth::Yes,
            unknown @ Truth::Unknown(_) => unknown,
        }
    }

    pub(crate) fn negated_if(self, invert: bool) -> Truth {
        if invert { self.negated() } else { self }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Truth {
        if value { Truth::Yes } else { Truth::No }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_parts_matter_only_where_they_decide() {
        let unknown = || Truth::unknown("x");
        assert_eq!(Truth::all([unknown(), Truth::No]), Truth::No);
        assert_eq!(Truth::all([unknown(), Truth::Yes]), unknown());
        assert_eq!(Truth::any([unknown(), Truth::Yes]), Truth::Yes);
        assert_eq!(Truth::any([unknown(), Truth::No]), unknown());
        assert_eq!(Truth::any([]), Truth::No);
        assert_eq!(unknown().negated(), unknown());
    }
}
