//! The project's build tool, run as `cargo xtask`. Command line only; each command has a file of its own.
#![allow(clippy::print_stdout, reason = "a tool talks to the person who runs it")]

mod bench;
mod bless;
mod check;
mod demo;
mod fuzz;
mod helm;
mod parity;
mod progress;
mod project;
mod reference;
mod setup;
mod test;
mod tidy;
mod validation;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, checks and shows Meltemi.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch Envoy and the Python packages of the tests into the cache folder
    Setup {
        /// Build istiod, its agent and kube-apiserver instead, for `bench --reference` and `test --reference` (needs Go; about ten minutes)
        #[arg(long)]
        reference: bool,
    },
    /// Formatting, clippy, tidy, dependency rules
    Check,
    /// The rules that no other tool knows: walls between crates, file sizes, words, docs that must stay true
    Tidy,
    /// Everything: setup, check, all tests, parity corpus, Envoy loads, demo
    Test {
        /// Only what needs Istio's own agent (see `cargo xtask setup --reference`)
        #[arg(long)]
        reference: bool,
    },
    /// Rewrite our own golden files (tests/golden); recorded parity answers are never touched
    Bless,
    /// Ask istioctl anew what it thinks of the objects of tests/validation
    Validation(validation::Args),
    /// Run the parity corpus, or the named cases
    Parity(parity::Args),
    /// A shop of three services with real Envoys on this machine
    Demo(demo::Args),
    /// Objects mutated at random against the way from text to messages: whether anything panics
    Fuzz(fuzz::Args),
    /// What changes cost, with a swarm of simulated proxies; with --reference istiod beside it
    Bench(bench::Args),
    /// Count anew what runs how often in the program, for release builds (see `cargo xtask setup --reference`; half an hour)
    Profile,
    /// Certificates per second of processor time; with --reference istiod's beside them
    Csrs(bench::csrs::Args),
    /// Meltemi under steady churn of objects and proxies: whether memory, tasks and open files stay flat
    Soak(bench::soak::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Setup { reference: false } => setup::run().map(|_| ()),
        Command::Setup { reference: true } => reference::setup(),
        Command::Check => check::run(),
        Command::Tidy => tidy::run(),
        Command::Test { reference: false } => test::run(),
        Command::Test { reference: true } => test::reference(),
        Command::Bless => bless::run(),
        Command::Parity(args) => parity::run(&args),
        Command::Validation(args) => validation::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Profile => bench::profile::run(),
        Command::Csrs(args) => bench::csrs::run(&args),
        Command::Soak(args) => bench::soak::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
