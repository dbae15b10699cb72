//! `meltemi check-inject` on the API server says of every workload what `istioctl x check-inject` says.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use testkit::injection::{folder, yaml};
use testkit::{environment, server, skip};

use super::super::chart::{of_kinds, rendered};
use super::super::{namespace, with_cluster};
use super::{SPACES, make_spaces};

/// Name and revision of a configuration, and whether it is asked.
type Rows = BTreeSet<(String, String, bool)>;

/// The labels of the pods of the corpus, and more of those that choose.
fn label_sets() -> Result<BTreeSet<Vec<(String, String)>>> {
    let mut sets = BTreeSet::new();
    for file in fs::read_dir(folder().join("cases"))? {
        let case = yaml(&fs::read_to_string(file?.path())?);
        let labels = case["pod"]["metadata"]["labels"].as_object().into_iter().flatten();
        let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        // Labels that do not choose make no difference.
        sets.insert(labels.filter(|(key, _)| key == "sidecar.istio.io/inject" || key == "istio.io/rev").collect());
    }
    for inject in ["true", "false"] {
        for revision in ["canary", "prod", "default"] {
            let labels = [("istio.io/rev", revision), ("sidecar.istio.io/inject", inject)];
            sets.insert(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec());
        }
    }
    Ok(sets)
}

#[test]
fn check_inject_agrees_with_istioctl() {
    let Some(istioctl) = environment::istioctl() else {
        return skip("istioctl: not found (`cargo xtask setup --reference`, or set MELTEMI_ISTIOCTL)");
    };
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        make_spaces(&api).await?;
        api.apply(&namespace("istio-system", &json!({}))).await?;
        let values = tempfile::NamedTempFile::new()?;
        for installed in [
            json!({ "sidecarInjectorWebhook": { "enableNamespacesByDefault": true } }),
            json!({ "revision": "canary", "revisionTags": ["prod"] }),
        ] {
            fs::write(values.path(), installed.to_string())?;
            let Some(objects) = rendered(Some(values.path()))? else { return Ok(()) };
            api.apply_all(&of_kinds(&objects, &["ConfigMap", "MutatingWebhookConfiguration"])).await?;
        }
        let (kubeconfig, program) = (cluster.kubeconfig()?, tokio::task::spawn_blocking(server::program).await??);
        let mut asked = 0;
        for (number, labels) in label_sets()?.into_iter().enumerate() {
            for (space, ..) in SPACES {
                let name = format!("w-{number}");
                api.apply(&deployment(space, &name, &labels)).await?;
                let ours = our_rows(&program, &kubeconfig, space, &name)?;
                let theirs = their_rows(&istioctl, &kubeconfig, space, &labels)?;
                ensure!(ours == theirs, "{space} {labels:?}: {ours:?}, istioctl: {theirs:?}");
                asked += ours.iter().filter(|row| row.2).count();
            }
        }
        ensure!(asked > 10, "only {asked} are injected at all");
        Ok(())
    });
}

fn deployment(space: &str, name: &str, labels: &[(String, String)]) -> Value {
    let mut chosen: serde_json::Map<String, Value> =
        labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    chosen.insert("app".to_owned(), name.into());
    let template =
        json!({ "metadata": { "labels": chosen }, "spec": { "containers": [{ "name": "app", "image": "app" }] } });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": space },
        "spec": { "selector": { "matchLabels": { "app": name } }, "template": template },
    })
}

fn our_rows(program: &Path, kubeconfig: &Path, space: &str, name: &str) -> Result<Rows> {
    let mut command = Command::new(program);
    command.args(["check-inject", &format!("deployment/{name}"), "-n", space, "-o", "json", "--kubeconfig"]);
    let output = command.arg(kubeconfig).output()?;
    ensure!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let check: Value = serde_json::from_slice(&output.stdout)?;
    let asked = check["webhooks"].as_array().context("webhooks")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(asked.iter().map(|it| (text(&it["name"]), text(&it["revision"]), it["asked"] == true)).collect())
}

fn their_rows(istioctl: &Path, kubeconfig: &Path, space: &str, labels: &[(String, String)]) -> Result<Rows> {
    let pairs = labels.iter().map(|(key, value)| format!("{key}={value}")).chain(["app=w".to_owned()]);
    let output = Command::new(istioctl)
        .args(["x", "check-inject", "-n", space, "-l", &pairs.collect::<Vec<_>>().join(","), "--kubeconfig"])
        .arg(kubeconfig)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let rows = text.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, revision, injected) = (words.next()?, words.next()?, words.next()?);
        // In colour, wherever it is written to.
        injected.contains(['✔', '✘']).then(|| (name.to_owned(), revision.to_owned(), injected.contains('✔')))
    });
    Ok(rows.collect())
}
