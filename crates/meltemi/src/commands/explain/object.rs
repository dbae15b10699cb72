//! `meltemi explain object`.

use anyhow::{Result, bail};

use crate::args::{Env, ExplainObject};
use crate::commands::Outcome;

pub(super) fn run(_args: ExplainObject, _env: &Env) -> Result<Outcome> {
    bail!("explain object is not built yet")
}
