//! `cargo xtask csrs`: certificates per second of processor time, Meltemi's and, with `--reference`, istiod's, from the same plugged-in
//! authority, for the same requests, over mutual TLS.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;

use super::Tools;
use super::authority::{Authority, P256, RSA_2048, generate, openssl};
use super::cluster::Cluster;
use super::plane::Plane;
use super::usage::{Cpu, rest};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure istiod on a kube-apiserver too (see `cargo xtask setup --reference`)
    #[arg(long)]
    reference: bool,
    /// Medians are taken over so many
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Of one round
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A kind of key, how openssl calls it, and how many times istiod's figure is claimed.
const KINDS: [(&str, &[&str], f64); 2] = [("P-256", P256, 3.0), ("RSA-2048", RSA_2048, 2.0)];

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    meltemi: Figure,
    /// `None`: it was not measured.
    istiod: Option<Figure>,
    claimed: f64,
}

/// Medians.
#[derive(Serialize, Clone, Copy)]
struct Figure {
    per_cpu_second: f64,
    per_second: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = Tools::find(args.reference, false)?;
    let mut rows = Vec::new();
    for (kind, options, claimed) in KINDS {
        let work = tempfile::tempdir().context("make a work folder")?;
        let files = Files::new(work.path(), options)?;
        let meltemi = meltemi(&tools, &files, args)?;
        let istiod = tools.reference.is_some().then(|| istiod(&tools, &files, args)).transpose()?;
        rows.push(Row { kind, meltemi, istiod, claimed });
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", text(&rows));
    }
    for Row { kind, meltemi, istiod, claimed } in &rows {
        let Some(istiod) = istiod else { continue };
        let times = meltemi.per_cpu_second / istiod.per_cpu_second;
        ensure!(
            times >= *claimed,
            "{kind}: {times:.1} times istiod's certificates per CPU second, claimed are {claimed}"
        );
    }
    Ok(())
}

fn text(rows: &[Row]) -> String {
    let mut out = String::from(
        "| authority | Meltemi per CPU second | istiod | times | Meltemi per second | istiod |\n|---|---|---|---|---|---|\n",
    );
    for Row { kind, meltemi, istiod, .. } in rows {
        let of = |pick: fn(&Figure) -> f64| istiod.as_ref().map_or("-".to_owned(), |it| format!("{:.0}", pick(it)));
        let times = istiod.map_or("-".to_owned(), |it| format!("{:.1}", meltemi.per_cpu_second / it.per_cpu_second));
        out += &format!(
            "| {kind} | {:.0} | {} | {times} | {:.0} | {} |\n",
            meltemi.per_cpu_second,
            of(|figure| figure.per_cpu_second),
            meltemi.per_second,
            of(|figure| figure.per_second)
        );
    }
    out
}

/// An authority, a workload's key and its signing request.
struct Files {
    dir: PathBuf,
    authority: Authority,
    key: PathBuf,
    csr: PathBuf,
}

impl Files {
    fn new(dir: &Path, kind: &[&str]) -> Result<Files> {
        let authority = Authority::new(dir.join("cacerts"), kind)?;
        let (key, csr) = (dir.join("key.pem"), dir.join("csr.pem"));
        generate(kind, &key)?;
        let name = "subjectAltName=URI:spiffe://cluster.local/ns/shop/sa/cart";
        let mut command = Command::new("openssl");
        command.args(["req", "-new", "-subj", "/O=bench", "-addext", name]);
        openssl(command.arg("-key").arg(&key).arg("-out").arg(&csr))?;
        Ok(Files { dir: dir.to_owned(), authority, key, csr })
    }
}

fn meltemi(tools: &Tools, files: &Files, args: &Args) -> Result<Figure> {
    let (objects, state) = (files.dir.join("objects"), files.dir.join("state"));
    fs::create_dir_all(&objects)?;
    let plane = Plane::meltemi_secure(&tools.meltemi, &objects, &state, &files.dir, &[files.authority.setting()?])?;
    let mut command = Command::new(&tools.meltemi);
    command.args(["token", "create", "--service-account", "shop/cart", "--stateDir"]).arg(&state);
    let token = command.output().context("run meltemi token")?.stdout;
    measured(tools, files, args, &plane, &token)
}

fn istiod(tools: &Tools, files: &Files, args: &Args) -> Result<Figure> {
    let reference = tools.reference.as_ref().context("istiod was asked for")?;
    let cluster = Cluster::start(reference, &files.dir)?;
    let token = cluster.api().account_token("shop", "cart", "istio-ca")?;
    let plane = Plane::istiod(reference, &cluster.kubeconfig, &files.dir, &[files.authority.setting()?], None)?;
    measured(tools, files, args, &plane, token.as_bytes())
}

/// One round to warm up, then the median of the others.
fn measured(tools: &Tools, files: &Files, args: &Args, plane: &Plane, token: &[u8]) -> Result<Figure> {
    let secure = plane.secure.context("the plane has a secure port")?;
    let token_file = files.dir.join("token");
    fs::write(&token_file, token)?;
    let mut figures = Vec::new();
    for round in 0..=args.rounds {
        rest(plane.process.id())?;
        let before = Cpu::of(plane.process.id())?;
        let answer = load(tools, files, secure, &token_file, args.seconds)?;
        rest(plane.process.id())?;
        let spent = Cpu::of(plane.process.id())?.since(&before);
        let number = |key: &str| answer[key].as_f64().with_context(|| format!("loadgen printed no {key}"));
        let (count, seconds) = (number("certificates")?, number("seconds")?);
        if round > 0 {
            figures.push(Figure { per_cpu_second: count / spent, per_second: count / seconds });
        }
    }
    figures.sort_by(|a, b| a.per_cpu_second.total_cmp(&b.per_cpu_second));
    figures.get(figures.len() / 2).copied().context("at least one round")
}

fn load(tools: &Tools, files: &Files, secure: SocketAddr, token: &Path, seconds: u64) -> Result<Value> {
    let mut command = Command::new(&tools.loadgen);
    command.args(["csr", &format!("--server={secure}"), &format!("--seconds={seconds}"), "--token"]).arg(token);
    command.arg("--key").arg(&files.key).arg("--csr").arg(&files.csr);
    let out = command.output().context("run loadgen")?;
    ensure!(out.status.success(), "loadgen: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).context("read the output of loadgen")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_compares_where_both_were_measured() {
        let figure = |per_cpu_second| Figure { per_cpu_second, per_second: 10.0 };
        let row = |istiod| Row { kind: "P-256", meltemi: figure(3000.0), istiod, claimed: 3.0 };
        assert!(text(&[row(Some(figure(500.0)))]).contains("| P-256 | 3000 | 500 | 6.0 |"));
        assert!(text(&[row(None)]).contains("| P-256 | 3000 | - | - |"));
    }
}
