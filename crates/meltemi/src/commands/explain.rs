//! `meltemi explain`: why something is as it is. Each subject has a file.

mod object;
mod proxy;
mod request;
mod request_mesh;

use anyhow::Result;

use super::Outcome;
use crate::args::{Env, Explain};

pub(crate) fn run(command: Explain, env: &Env) -> Result<Outcome> {
    match command {
        Explain::Proxy(args) => proxy::run(args, env),
        Explain::Object(args) => object::run(args, env),
        Explain::Request(args) => request::run(*args, env),
    }
}
