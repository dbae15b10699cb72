//! `cargo xtask dist`: what a release consists of, in one folder: archives of a static binary, the image, the chart, the SBOM, checksums.

mod build;
mod licences;
mod packages;
mod sbom;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::image::{Layer, Which, write};
use crate::{helm, progress, project, setup};
use build::Target;
use packages::Packages;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const CHART: &str = "deploy/helm/meltemi";
/// Beside the program in each archive.
const DOCUMENTS: [&str; 3] = ["LICENSE", "README.md", "CHANGELOG.md"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The profile of cargo that the program is built with; dev is for trying the packaging
    #[arg(long, default_value = "release")]
    profile: String,
    /// A static program for this machine, if it is not to be built
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The folder to write to; in the target folder if not given
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let output = args.output.clone().unwrap_or_else(|| project::target().join("dist"));
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| format!("empty {}", output.display()))?;
    }
    fs::create_dir_all(&output).with_context(|| format!("make the folder {}", output.display()))?;
    let packages = Packages::of_meltemi()?;
    let licences = licences::text(&packages)?;
    for target in Target::ALL {
        let program = match &args.program {
            Some(given) if target.is_here() => given.clone(),
            _ => match target.missing()? {
                Some(why) => {
                    eprintln!("  SKIPPED: no archive for {}: {why}", target.architecture());
                    continue;
                }
                None => target.build(&args.profile)?,
            },
        };
        build::check_static(&program)?;
        progress::own_step(&format!("archive for {}", target.architecture()), || {
            archive(target, &program, &licences, &output)
        })?;
        if target.is_here() {
            progress::own_step("image", || image(target, &program, &output))?;
        }
    }
    progress::own_step("SBOM", || {
        let file = output.join(format!("meltemi-{VERSION}.cdx.json"));
        fs::write(file, format!("{:#}\n", sbom::document(&packages))).context("write the SBOM")
    })?;
    chart(&output)?;
    let sums = checksums(&output)?;
    print!("{sums}");
    println!("in {}", output.display());
    Ok(())
}

/// One folder with the program and what has to come with it.
fn archive(target: Target, program: &Path, licences: &str, output: &Path) -> Result<()> {
    let name = format!("meltemi-{VERSION}-linux-{}", target.architecture());
    let mut layer = Layer::default();
    layer.static_program(&format!("{name}/meltemi"), program);
    layer.text(&format!("{name}/THIRD-PARTY-LICENCES.txt"), licences);
    for document in DOCUMENTS {
        layer.file(&format!("{name}/{document}"), &project::root().join(document));
    }
    let file = File::create(output.join(format!("{name}.tar.gz")))?;
    // Without name and time: same contents, same bytes.
    let mut gzip = Command::new("gzip");
    let mut gzip = gzip.args(["-9", "--no-name"]).stdin(Stdio::piped()).stdout(file).spawn().context("run gzip")?;
    let mut input = gzip.stdin.take().context("its input is piped")?;
    layer.write(&mut input)?;
    drop(input);
    ensure!(gzip.wait()?.success(), "gzip failed, see above");
    Ok(())
}

fn image(target: Target, program: &Path, output: &Path) -> Result<()> {
    let image = Which::Meltemi.image(&format!("meltemi:{VERSION}"), program)?;
    write(&[image], &output.join(format!("meltemi-{VERSION}-oci-{}.tar", target.architecture())))?;
    Ok(())
}

fn chart(output: &Path) -> Result<()> {
    helm::setup(&setup::tools()?.python)?;
    let mut package = Command::new(helm::program()?);
    package.arg("package").arg(project::root().join(CHART)).arg("--destination").arg(output);
    progress::step("chart", &mut package)
}

/// As `sha256sum --check` reads them.
fn checksums(output: &Path) -> Result<String> {
    let mut sums = String::new();
    for file in project::files(output)? {
        let hash = Sha256::digest(fs::read(output.join(&file))?);
        let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        sums += &format!("{hex}  {}\n", file.display());
    }
    fs::write(output.join("SHA256SUMS"), &sums).context("write SHA256SUMS")?;
    Ok(sums)
}
