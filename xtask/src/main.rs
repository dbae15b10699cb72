//! The project's build tool, run as `cargo xtask`. Command line only; each command has a file of its own.
#![allow(clippy::print_stdout, reason = "a tool talks to the person who runs it")]

mod bench;
mod bless;
mod check;
mod cluster;
mod cluster_tests;
mod console;
mod demo;
mod differential;
mod dist;
mod fuzz;
mod helm;
mod image;
mod parity;
mod progress;
mod project;
mod reference;
mod setup;
mod test;
mod tidy;
mod validation;

use std::path::PathBuf;
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
        /// Build istiod, its agent and kube-apiserver instead, for `bench --reference` (needs Go; about ten minutes)
        #[arg(long)]
        reference: bool,
    },
    /// Run rustfmt, clippy, tidy and cargo-deny
    Check,
    /// The rules that no other tool knows: edges between crates, sizes of files and functions, banned words, unique type names, dependencies, docs
    Tidy,
    /// Run what CI runs: setup, check, all tests, parity corpus, Envoy loads, demo
    Test {
        /// Only what needs real pods, all of it: on a node that is started for it (root on Linux; sets it up first)
        #[arg(long)]
        cluster: bool,
        /// With --cluster: a cluster that is there, and has the images (cargo xtask image) as docker.io/library/{meltemi,proxyv2,app}:local
        #[arg(long, value_name = "FILE", requires = "cluster")]
        kubeconfig: Option<PathBuf>,
    },
    /// Rewrite our own golden files (tests/golden); recorded parity answers are never touched
    Bless,
    /// Record again what istioctl reports for the objects of tests/validation
    Validation(validation::Args),
    /// Run the parity corpus, or the named cases
    Parity(parity::Args),
    /// Compare with a real istiod on random meshes: the rate of equal ones, and every difference on a small mesh
    Differential(differential::Args),
    /// Run a demo mesh of three services with real Envoys on this machine
    Demo(demo::Args),
    /// A real Kubernetes node on this machine: kubelet, containerd, real pods (root on Linux)
    Cluster(cluster::Args),
    /// Make a container image without a container engine, as an OCI archive
    Image(image::Args),
    /// What a release consists of: archives of a static program, image, chart, SBOM, licences, checksums
    Dist(dist::Args),
    /// The web console: build, check, test, screenshots
    #[command(subcommand)]
    Console(console::Args),
    /// The program of applications in tests and in the demo
    #[command(hide = true)]
    App(shop::app::AppArgs),
    /// Fuzz one target for a while, guided by coverage; fails if anything panics, takes too long or differs from the reference
    Fuzz(fuzz::Args),
    /// Benchmark pushes with a swarm of simulated proxies: convergence, CPU, memory; with --reference beside istiod
    Bench(bench::Args),
    /// Benchmark the CA: certificates per second of CPU time; with --reference beside istiod
    Csrs(bench::csrs::Args),
    /// Soak test: churn of objects and proxies; fails if memory, tasks or open files grow
    Soak(bench::soak::Args),
    /// Attack a server with connected proxies: what each attack costs the others, as a table; fails if one costs too much
    Abuse(bench::abuse::Args),
}

fn main() -> ExitCode {
    let outcome = match Args::parse().command {
        Command::Setup { reference: false } => setup::run().map(|_| ()),
        Command::Setup { reference: true } => reference::setup(),
        Command::Check => check::run(),
        Command::Tidy => tidy::run(),
        Command::Test { cluster: true, kubeconfig } => cluster_tests::run(kubeconfig.as_deref()),
        Command::Test { .. } => test::run(),
        Command::Bless => bless::run(),
        Command::Parity(args) => parity::run(&args),
        Command::Differential(args) => match differential::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
        Command::Validation(args) => validation::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Console(args) => console::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Cluster(args) => cluster::run(&args),
        Command::Image(args) => image::run(&args),
        Command::App(args) => shop::app::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Csrs(args) => bench::csrs::run(&args),
        Command::Soak(args) => bench::soak::run(&args),
        Command::Abuse(args) => bench::abuse::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
