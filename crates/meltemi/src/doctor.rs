//! `meltemi doctor`: what slows a mesh down, found by itself. `facts` is what a server tells of its mesh, `sample` what its metrics say, `checks` what
//! follows from both; asking and printing is the command's.

pub(crate) mod checks;
pub(crate) mod facts;
pub(crate) mod gather;
pub(crate) mod sample;
mod scoping;
