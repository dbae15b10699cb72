//! `meltemi nacks`: what proxies reject at the moment, with the objects and fields to blame.

use anyhow::{Result, bail};

use super::Outcome;
use crate::args::Nacks;

pub(crate) fn run(_args: &Nacks) -> Result<Outcome> {
    bail!("nacks is not built yet")
}
