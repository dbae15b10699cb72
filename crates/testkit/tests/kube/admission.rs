//! The checks that the API server makes by itself: what `meltemi admission-policy` prints, in force.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use config::kind::Kind;
use config::tree::Node;
use config::validate::{AdmissionRule, RULES};
use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::cluster::ApiWriter;
use testkit::server;
use testkit::wait::eventually;

use super::{namespace, with_cluster};

fn read(text: &str) -> Result<Vec<Value>> {
    let trees: Result<Vec<_>, _> = documents(text, Scalars::Objects).collect();
    let trees = trees.map_err(|fault| anyhow::anyhow!("line {}: {}", fault.at.line, fault.what))?;
    Ok(trees.iter().map(Node::to_json).collect())
}

fn object(rule: &AdmissionRule, spec: &str) -> Result<Value> {
    let version = format!("{}/{}", rule.kind.group(), rule.kind.versions()[0]);
    let metadata = json!({ "name": "a", "namespace": "admitted" });
    Ok(json!({ "apiVersion": version, "kind": rule.kind.name(), "metadata": metadata, "spec": read(spec)?[0] }))
}

async fn rejection(api: &ApiWriter, object: &Value) -> String {
    api.apply(object).await.err().map(|error| format!("{error:#}")).unwrap_or_default()
}

#[test]
fn the_api_server_rejects_by_itself_what_check_rejects() {
    with_cluster(async |cluster| {
        let api = cluster.api().await?;
        api.apply(&namespace("admitted", &json!({}))).await?;
        let program = tokio::task::spawn_blocking(server::program).await??;
        let printed = Command::new(program).arg("admission-policy").output()?;
        let policies = read(&String::from_utf8(printed.stdout)?)?;
        api.apply_all(&policies).await?;
        for rule in RULES {
            let bad = object(&rule, rule.rejected)?;
            // A policy comes into force a moment after it was stored.
            let rejected = async || Ok(rejection(&api, &bad).await.contains(rule.message));
            let done = eventually(rule.message, rejected).await;
            ensure!(done.is_ok(), "{}: {}", rule.rejected, rejection(&api, &bad).await);
            let good = object(&rule, rule.allowed)?;
            let rejected = rejection(&api, &good).await;
            ensure!(rejected.is_empty(), "{}: {rejected}", rule.allowed);
            api.delete(&good).await?;
        }
        // istiod tests its own webhook with an object that only that may reject.
        let gateways = RULES.iter().find(|rule| rule.kind == Kind::Gateway).context("a rule for Gateways")?;
        let mut probe = object(gateways, gateways.rejected)?;
        probe["metadata"]["annotations"] = json!({ "internal.istio.io/webhook-always-reject": "true" });
        let refused = rejection(&api, &probe).await;
        ensure!(refused.is_empty(), "{refused}");
        api.delete(&probe).await?;
        Ok(())
    });
}
