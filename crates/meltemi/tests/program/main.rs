//! The built program, run as a user runs it.

mod bootstrap;
mod check;
mod render;
mod run;
mod serve;
