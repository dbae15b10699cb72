//! docs/insight.md, executed: files are written as the page has them, and commands print the lines that it shows. A real Envoy rejects what the
//! page says that Envoy rejects.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::parity::CaseProxy;
use testkit::wait::eventually_blocking;
use testkit::{environment, skip};

use crate::run::{PROGRAM, run};
use crate::serve::{Server, put};

const PAGE: &str = include_str!("../../../../docs/insight.md");

/// What is to be done at one place of the page.
#[derive(Debug)]
enum Step {
    Write(String, String),
    Run(String, Vec<String>),
}

/// The mesh of the page, and a folder in which commands find it by that name.
pub(crate) struct PageWorkspace {
    mesh: TempDir,
    folder: TempDir,
}

impl PageWorkspace {
    pub(crate) fn new() -> PageWorkspace {
        let (mesh, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let shop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop");
        for entry in std::fs::read_dir(shop).expect("the example") {
            let file = entry.expect("a file").path();
            std::fs::copy(&file, mesh.path().join(file.file_name().expect("a name"))).expect("a copy");
        }
        std::os::unix::fs::symlink(mesh.path(), folder.path().join("mesh")).expect("a link");
        PageWorkspace { mesh, folder }
    }

    pub(crate) fn mesh(&self) -> &TempDir {
        &self.mesh
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run_step(&self, step: &Step, url: Option<&str>) {
        match step {
            Step::Write(name, text) => std::fs::write(self.file(name), text).expect("a file"),
            Step::Run(command, expected) => self.execute(command, expected, url),
        }
    }

    /// Until it prints what it should: a server and its proxies need a moment.
    fn execute(&self, command: &str, expected: &[String], url: Option<&str>) {
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[0] {
            "cp" => {
                std::fs::copy(self.file(words[1]), self.file(words[2])).expect("a copy");
            }
            "rm" => std::fs::remove_file(self.file(words[1])).expect("one file less"),
            "meltemi" => {
                let is_offline = words.contains(&"mesh");
                let server = if is_offline { Vec::new() } else { vec!["--server", url.expect("a server")] };
                let mut printed = String::new();
                let right = eventually_blocking(command, || {
                    let mut program = Command::new(PROGRAM);
                    let ran = program.args(&words[1..]).args(&server).env_clear();
                    let ran = ran.current_dir(self.folder.path()).output()?;
                    printed = String::from_utf8(ran.stdout)? + &String::from_utf8(ran.stderr)?;
                    Ok(ran.status.code() != Some(2) && has_lines(&printed, expected))
                });
                assert!(right.is_ok(), "$ {command}\n{printed}\nis not\n{}", expected.join("\n"));
            }
            other => panic!("the page runs {other}"),
        }
    }
}

/// In this order; `..` stands for any lines. Numbers differ from run to run.
fn has_lines(printed: &str, expected: &[String]) -> bool {
    let mut left = printed.lines().map(without_numbers);
    let mut wanted = expected.iter().filter(|line| *line != ".." && !line.is_empty());
    wanted.all(|wanted| left.any(|line| line == without_numbers(wanted)))
}

fn without_numbers(line: &str) -> String {
    line.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

/// Indented blocks: the content of the file that the line before names, or commands with what they print.
fn steps(part: &str) -> Vec<Step> {
    let (mut steps, mut file): (Vec<Step>, Option<String>) = (Vec::new(), None);
    for line in part.lines() {
        let named = line.strip_suffix("`:").and_then(|it| Some(it.rsplit_once('`')?.1.to_owned()));
        match (line.strip_prefix("    "), &mut file) {
            (None, _) if line.is_empty() => {}
            (None, _) => file = named,
            (Some(text), Some(name)) => match steps.last_mut() {
                Some(Step::Write(last, content)) if last == name => content.push_str(&format!("{text}\n")),
                _ => steps.push(Step::Write(name.clone(), format!("{text}\n"))),
            },
            (Some(text), None) => match (text.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step::Run(command.to_owned(), Vec::new())),
                (None, Some(Step::Run(_, expected))) => expected.push(text.to_owned()),
                (None, _) => panic!("what prints {text:?}?"),
            },
        }
    }
    steps
}

fn parts() -> (Vec<Step>, Vec<Step>) {
    let (first, second) = PAGE.split_once("## A filter that Envoy refuses").expect("a second part");
    (steps(first), steps(second))
}

pub(crate) fn serve(workspace: &PageWorkspace) -> (Server, String) {
    let server = Server::start(&workspace.mesh, &["--derive-endpoints"]);
    let url = format!("http://{}", server.port("--monitoringAddr"));
    (server, url)
}

/// The proxy of stock: without certificates it is the one that is ready.
fn stock(envoy: &Path, workspace: &PageWorkspace, server: &Server) -> Envoy {
    let proxy = CaseProxy::new(&json!({
        "name": "stock-v1", "namespace": "shop", "ip": "127.0.10.3", "labels": { "app": "stock", "version": "v1" },
        "metadata": { "INTERCEPTION_MODE": "NONE" },
    }));
    let ads = ServerAddress::Tcp(server.port("--grpcAddr").parse().expect("an address"));
    let bootstrap = Bootstrap { proxy: &proxy.expect("a node"), ads, sds: workspace.file("sds") };
    Envoy::start(envoy, &[], &bootstrap).expect("Envoy starts")
}

#[test]
fn commands_without_envoy_print_what_the_page_shows() {
    let (workspace, (steps, _)) = (PageWorkspace::new(), parts());
    let (_server, url) = serve(&workspace);
    assert!(steps.len() >= 7, "{steps:?}");
    steps.iter().for_each(|step| workspace.run_step(step, Some(&url)));
}

#[test]
fn meltemi_nacks_names_the_rejected_envoy_filter() {
    let Some(binary) = environment::envoy() else {
        return skip("rejections by a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let (workspace, (_, steps)) = (PageWorkspace::new(), parts());
    let (server, url) = serve(&workspace);
    let _envoy = stock(&binary, &workspace, &server);
    std::os::unix::fs::symlink(&binary, workspace.file("envoy")).expect("a link");
    assert!(steps.len() >= 8, "{steps:?}");
    steps.iter().for_each(|step| workspace.run_step(step, Some(&url)));
}

/// Envoy's text on routes does not name the route configuration.
#[test]
fn meltemi_nacks_names_the_rejected_virtual_service() {
    let Some(binary) = environment::envoy() else {
        return skip("rejections by a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    let workspace = PageWorkspace::new();
    let text = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: supplier, namespace: shop}, spec: {hosts: [supplier.example.com], http: [{headers: {request: {set: {x-caller: '%NOPE%'}}}, route: [{destination: {host: supplier.example.com}}]}]}}";
    put(&workspace.mesh, "headers.yaml", text);
    let (server, url) = serve(&workspace);
    let _envoy = stock(&binary, &workspace, &server);
    let lines = |all: &[&str]| all.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    let rejected = lines(&[
        "RDS rejected by stock-v1.shop since 2026-11-18T21:20:43.331Z",
        "    VirtualService shop/supplier (headers.yaml:1:1)",
        "      spec.http[0].headers.request.set",
    ]);
    workspace.execute("meltemi nacks", &rejected, Some(&url));
    let explained = run(&["explain", "object", "VirtualService", "shop/supplier", "--server", &url]);
    assert!(explained.code == Some(1) && explained.stdout.contains("stock-v1.shop  REJECTED"), "{explained:?}");
    let waited = run(&["wait", "VirtualService", "shop/supplier", "--server", &url]);
    assert!(
        waited.code == Some(1) && waited.stdout.contains("stock-v1.shop: rejected: Not supported field"),
        "{waited:?}"
    );
}
