//! `meltemi explain proxy`.

use anyhow::{Result, bail};

use crate::args::{Env, ExplainProxy};
use crate::commands::Outcome;

pub(super) fn run(_args: ExplainProxy, _env: &Env) -> Result<Outcome> {
    bail!("explain proxy is not built yet")
}
