//! The built program, run as a user runs it.

mod admin;
mod agent;
mod attacks;
mod bootstrap;
mod chart;
mod chart_values;
mod check;
mod check_inject;
mod delivery;
mod demo;
mod explain;
mod history;
mod identity;
mod injection;
mod insight;
mod keys;
mod plan;
mod plan_validation;
mod quarantine;
mod render;
mod rights;
mod run;
mod serve;
mod service_entries;
