//! `cargo xtask image`: container images without a container engine, as OCI archives.

mod archive;
mod layer;
mod recipes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

pub(crate) use archive::{Image, write};
pub(crate) use layer::{Layer, on_path};
pub(crate) use recipes::single;

use crate::{progress, project, setup};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which image
    #[arg(value_enum, default_value = "meltemi")]
    which: Which,
    /// The program, if it is not to be built for release
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Name and tag of the image of the control plane
    #[arg(long, default_value = concat!("meltemi:", env!("CARGO_PKG_VERSION")))]
    name: String,
    /// The archive; in the target folder if not given
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// The control plane, as the Dockerfile makes it
    Meltemi,
    /// A sidecar for tests: Istio's agent, a stock Envoy, iptables
    Proxy,
    /// A sidecar for tests: `meltemi agent`, a stock Envoy, iptables
    AgentProxy,
    /// The program that stands for applications in tests and in the demo
    App,
}

impl Which {
    /// Made of the programs that are there; `program` is Meltemi.
    pub(crate) fn image(self, name: &str, program: &Path) -> Result<Image> {
        match self {
            Which::Meltemi => recipes::meltemi(name, program),
            Which::Proxy => recipes::proxy(&envoy()?),
            Which::AgentProxy => recipes::agent_proxy(program, &envoy()?),
            Which::App => recipes::app(),
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

fn envoy() -> Result<PathBuf> {
    let link = setup::tools()?.envoy;
    std::fs::canonicalize(&link).with_context(|| format!("follow {}", link.display()))
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if !cfg!(target_os = "linux") {
        bail!(
            "images are made of programs of this machine, so it must run Linux; elsewhere: docker build (docs/install.md)"
        );
    }
    let program = match &args.program {
        Some(given) => given.clone(),
        None => shipped()?,
    };
    let output = args.output.clone();
    let output = output.unwrap_or_else(|| project::target().join("image").join(format!("{}.tar", args.which.name())));
    let image = args.which.image(&args.name, &program)?;
    let name = image.name.clone();
    let mut digests = Vec::new();
    progress::own_step(&format!("image {name}"), || {
        digests = write(&[image], &output)?;
        Ok(())
    })?;
    println!("{name}  {}  {}", digests.join(" "), output.display());
    Ok(())
}

/// As in the Dockerfile: paths of this machine do not get into the binary, so that the same sources give the same bytes.
pub(crate) fn path_flags() -> Result<String> {
    let cargo = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    Ok(format!(
        "--remap-path-prefix={}=meltemi --remap-path-prefix={}=cargo -C strip=symbols",
        project::root().display(),
        cargo.context("neither CARGO_HOME nor HOME is set; set one")?
    ))
}

fn shipped() -> Result<PathBuf> {
    let target = project::target().join("image");
    let mut build = project::shipped();
    build.arg("--locked").env("CARGO_TARGET_DIR", &target);
    build.envs([("RUSTFLAGS", path_flags()?.as_str()), ("SOURCE_DATE_EPOCH", "0")]);
    progress::step("build meltemi for release", &mut build)?;
    Ok(target.join("release/meltemi"))
}
