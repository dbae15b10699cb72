//! What a person sees while the shop starts: one line for each step, with its time.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use anyhow::Result;

/// Does one thing. On a terminal its line is there before it is done.
pub(crate) fn step(what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let moving = std::io::stderr().is_terminal();
    if moving {
        eprint!("  {what} ...");
        std::io::stderr().flush().ok();
    }
    let start = Instant::now();
    let outcome = work();
    let clear = if moving { "\r\x1b[K" } else { "" };
    let result = if outcome.is_ok() { "ok" } else { "FAILED" };
    eprintln!("{clear}  {what:<44} {result:<6} {:.1} s", start.elapsed().as_secs_f64());
    outcome
}
