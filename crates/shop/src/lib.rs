//! The shop on one machine: a control plane, three services with real Envoys, and what there is to try. It is given the programs, and
//! knows nothing else of Meltemi.
#![allow(clippy::print_stdout, reason = "it talks to the person who runs it")]

pub mod app;
mod files;
pub mod http;
mod open_shop;
mod pods;
pub mod port;
pub mod process;
mod step;
pub mod traffic;
mod tries;

use std::path::PathBuf;

use anyhow::Result;

pub use open_shop::{OpenShop, output};

pub struct Shop {
    /// Meltemi.
    pub program: PathBuf,
    pub envoy: PathBuf,
    /// The work folder with its logs stays.
    pub keep: bool,
}

impl Shop {
    pub fn open(&self) -> Result<OpenShop> {
        OpenShop::start(self)
    }
}
