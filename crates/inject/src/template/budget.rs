//! The limits of one rendering. They are counted, not timed, so that the same template and data end the same way everywhere.

use std::cell::Cell;

/// Bytes of the output, and of any text that a function makes.
pub(crate) const MAX_TEXT: usize = 8 << 20;
/// Evaluated operands, visited values, and every eighth byte of text that is made. The largest shipped template takes 6,000.
const MAX_WORK: usize = 8_000_000;

#[derive(Debug)]
pub(crate) struct Budget(Cell<usize>);

impl Budget {
    pub(super) fn new() -> Budget {
        Budget(Cell::new(MAX_WORK))
    }

    /// `Err`: the rendering has done too much.
    pub(crate) fn spend(&self, work: usize) -> Result<(), String> {
        let rest = self.0.get().checked_sub(work);
        self.0.set(rest.unwrap_or(0));
        rest.map(|_| ()).ok_or_else(|| format!("the template does too much: more than {MAX_WORK} steps"))
    }

    /// Before a text of so many bytes is made.
    pub(crate) fn spend_text(&self, bytes: usize) -> Result<(), String> {
        limit_text(bytes)?;
        self.spend(bytes / 8 + 1)
    }
}

pub(super) fn limit_text(bytes: usize) -> Result<(), String> {
    if bytes > MAX_TEXT {
        return Err(format!("a text of {bytes} bytes; {} MiB is the most", MAX_TEXT >> 20));
    }
    Ok(())
}
