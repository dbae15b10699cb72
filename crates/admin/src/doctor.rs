//! `meltemi doctor`: finds what slows a mesh down. `facts` is what a server reports about its mesh, `sample` its metrics, `history` those of
//! the last minutes, `checks` the findings
//! from both. Requests and output belong to the command.

pub mod checks;
pub(crate) mod collect;
pub mod facts;
pub mod history;
pub mod report;
pub mod sample;
