//! The recording of the README: the demo's shop, edited as a user would, with what the commands really print. It is written as a picture;
//! how that looks is `terminal`'s.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use shop::OpenShop;

use super::terminal::{Scene, Shown, svg};
use crate::progress;

/// What is typed, scene by scene. `CURL` stands for the front's address.
const SCRIPT: [(&str, &[&str]); 4] = [
    ("Three services with real Envoys and mutual TLS, served from a folder of YAML", &["curl CURL", "meltemi proxies"]),
    (
        "cart v2 runs. What would a canary change, for whom, in how many bytes?",
        &[
            "cp shop-later/cart-v2.yaml shop-later/cart-versions.yaml shop/",
            "meltemi plan -f shop-later/cart-canary.yaml | head -n 6",
        ],
    ),
    (
        "Apply it, wait until every proxy has acknowledged it, and look at the traffic",
        &[
            "cp shop-later/cart-canary.yaml shop/",
            "meltemi wait -f shop-later/cart-canary.yaml",
            "for i in $(seq 100); do curl -s CURL; done | sort | uniq -c",
        ],
    ),
    (
        "Which change brought these lines of the routes?",
        &["meltemi blame front-v1.shop rds/7081 | grep -v '^- ' | head -n 12"],
    ),
];

/// Proxies follow within milliseconds; a person would not type the next command before.
const BETWEEN_COMMANDS: Duration = Duration::from_millis(1500);

pub(super) fn record(shop: &OpenShop, file: &Path) -> Result<()> {
    ensure!(
        shop.monitoring().port() == 15014,
        "port 15014 is in use: the recording shows commands as they are typed where it is free"
    );
    let mut scenes = Vec::new();
    for (caption, commands) in SCRIPT {
        let mut shown = Vec::new();
        for command in commands {
            let command = command.replace("CURL", &format!("http://{}/", shop.front()));
            progress::own_step(&command, || {
                let output = typed(shop, &command)?;
                shown.push(Shown { command: command.clone(), output });
                Ok(())
            })?;
            thread::sleep(BETWEEN_COMMANDS);
        }
        scenes.push(Scene { caption, commands: shown });
    }
    let svg = svg(&scenes);
    fs::write(file, &svg).with_context(|| format!("write {}", file.display()))?;
    eprintln!("demo: {} ({} kB)", file.display(), svg.len() / 1000);
    Ok(())
}

/// What a shell prints on stdout, in the folder of the demo.
fn typed(shop: &OpenShop, command: &str) -> Result<String> {
    let folder = shop.program().parent().context("a program is in a folder")?;
    let path = std::env::join_paths(
        [folder.to_owned()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )?;
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(shop.folder()).env("PATH", path);
    shop::output(&mut shell)
}
