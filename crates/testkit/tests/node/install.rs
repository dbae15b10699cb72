//! What the chart makes on a real cluster, and what is left when it is gone.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::mesh::{IMAGES, Mesh, in_turn};

/// Of every process of the control plane: its user and how its root is mounted, as the node's kernel has them.
const LOOK: &str = "for p in /proc/[0-9]*; do if tr '\\0' ' ' < $p/cmdline 2> /dev/null | grep -q '^/usr/local/bin/meltemi discovery'; then \
    awk '/^Uid:/{print \"user\", $2}' $p/status; awk '$5 == \"/\"{print \"root\", $6}' $p/mountinfo; fi; done";

fn ready_replicas(mesh: &Mesh) -> Result<i64> {
    let deployment = mesh.get(&["deployment", "istiod", "-n", "istio-system"])?;
    Ok(deployment["status"]["readyReplicas"].as_i64().unwrap_or_default())
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn two_replicas_become_ready_and_one_of_them_leads() {
    in_turn(|mesh| {
        mesh.until("two replicas to be ready", |mesh| Ok(ready_replicas(mesh)? == 2))?;
        let pods = mesh.pods("istio-system", "app=istiod")?;
        let restarted = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"] != 0;
        ensure!(!pods.iter().any(restarted), "a probe or a crash restarted one: {pods:?}");
        mesh.until("a leader", |mesh| {
            let leases = mesh.get(&["leases", "-n", "istio-system"])?;
            let leads =
                |lease: &Value| lease["spec"]["holderIdentity"].as_str().is_some_and(|name| name.contains("istiod"));
            Ok(leases["items"].as_array().is_some_and(|leases| leases.iter().any(leads)))
        })
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn a_budget_lets_one_replica_at_a_time_be_moved() {
    in_turn(|mesh| {
        mesh.until("the budget to count both replicas", |mesh| {
            let budget = mesh.get(&["poddisruptionbudget", "istiod", "-n", "istio-system"])?;
            Ok(budget["status"]["currentHealthy"] == 2 && budget["status"]["disruptionsAllowed"] == 1)
        })
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn it_runs_as_istiods_user_on_a_read_only_root() {
    in_turn(|mesh| {
        let Some(seen) = mesh.on_node(&["node", "sh", "-c", LOOK]) else {
            testkit::skip("user and mounts of the process: the node is none of ours");
            return Ok(());
        };
        let seen = seen?;
        ensure!(seen.lines().filter(|line| *line == "user 1337").count() >= 2, "{seen}");
        ensure!(!seen.contains("user 0"), "{seen}");
        let roots: Vec<&str> = seen.lines().filter_map(|line| line.strip_prefix("root ")).collect();
        ensure!(!roots.is_empty() && roots.iter().all(|options| options.starts_with("ro,")), "{seen}");
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn commands_run_inside_the_pod() {
    in_turn(|mesh| {
        let run = |words: &[&str]| {
            mesh.kubectl(&[&["-n", "istio-system", "exec", "deployment/istiod", "--", "meltemi"], words].concat())
        };
        for words in [["proxies"].as_slice(), &["--version"], &["pushes"], &["ca", "status"]] {
            ensure!(!run(words)?.is_empty(), "meltemi {words:?} printed nothing");
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn the_webhook_refuses_an_object_that_istiod_would_refuse() {
    in_turn(|mesh| {
        // With the revision's label: those without one are the default validator's, which is in Istio's chart `base`.
        let object = "
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: wrong, namespace: default, labels: {istio.io/rev: default}}
spec: {hosts: [wrong.example.com], http: [{route: [{destination: {host: a}, weight: -1}]}]}";
        mesh.until("the webhook to be asked", |mesh| match mesh.apply(object) {
            Ok(_) => mesh.kubectl(&["-n", "default", "delete", "virtualservice", "wrong"]).map(|_| false),
            Err(error) => {
                let text = format!("{error:#}");
                ensure!(text.contains("denied the request") && text.contains("weight"), "{text}");
                Ok(true)
            }
        })
    });
}

/// What somebody has in the values of istiod's chart.
const ISTIODS_VALUES: &str = "
revision: third
autoscaleEnabled: false
replicaCount: 1
traceSampling: 5
env: {PILOT_DEBOUNCE_AFTER: 50ms}
meshConfig: {accessLogFile: /dev/stdout, trustDomain: third.example}
resources: {requests: {cpu: 10m, memory: 64Mi}}
global:
  hub: docker.io/library
  tag: local
  meshID: third
  multiCluster: {clusterName: west}
  proxy: {logLevel: info}
";

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn istiods_values_install_it_as_they_installed_istiod() {
    in_turn(|mesh| {
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), ISTIODS_VALUES)?;
        let values = file.path().to_str().context("a path in UTF-8")?;
        mesh.helm_install("third", "third-system", &["-f", values])?;
        let deployment = mesh.get(&["deployment", "istiod-third", "-n", "third-system"])?;
        ensure!(deployment["status"]["readyReplicas"] == 1, "{}", deployment["status"]);
        let log = mesh.kubectl(&["-n", "third-system", "logs", "deployment/istiod-third"])?;
        ensure!(log.contains("cluster west"), "{log}");
        mesh.helm(&["uninstall", "third", "-n", "third-system", "--wait"])?;
        mesh.kubectl(&["delete", "namespace", "third-system", "--wait=false"]).context("remove the namespace")?;
        Ok(())
    });
}

#[test]
#[ignore = "needs a real cluster: cargo xtask test --cluster"]
fn uninstalling_leaves_only_what_other_control_planes_need() {
    in_turn(|mesh| {
        // With everything that is off by default. Network policies are objects only: the bridge of the node does not enforce them.
        let values = format!("{IMAGES},revision=second,global.networkPolicy.enabled=true");
        mesh.helm_install("second", "second-system", &["--set", &values])?;
        let policy = mesh.get(&["networkpolicy", "-n", "second-system"])?;
        ensure!(policy["items"].as_array().is_some_and(|list| list.len() == 1), "{policy}");
        mesh.helm(&["uninstall", "second", "-n", "second-system", "--wait"])?;
        for kind in
            ["validatingwebhookconfiguration", "mutatingwebhookconfiguration", "clusterrole", "clusterrolebinding"]
        {
            let left = mesh.kubectl(&["get", kind, "-o", "name"])?;
            ensure!(!left.contains("second"), "{left}");
        }
        mesh.until("the release to be gone", |mesh| Ok(unexpected(mesh)?.is_empty()))
            .with_context(|| format!("{:?} stays", unexpected(mesh)))?;
        mesh.kubectl(&["delete", "namespace", "second-system", "--wait=false"]).context("remove the namespace")?;
        Ok(())
    });
}

/// The root outlives the release, so that a new one is trusted; its certificate is in every namespace. The others are Kubernetes' own.
fn unexpected(mesh: &Mesh) -> Result<Vec<String>> {
    let kinds = "all,configmap,secret,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget";
    let expected = [
        "configmap/istio-ca-root-cert",
        "configmap/kube-root-ca.crt",
        "secret/istio-ca-secret",
        "serviceaccount/default",
    ];
    let left = mesh.kubectl(&["get", kinds, "-n", "second-system", "-o", "name"])?;
    Ok(left.lines().filter(|name| !expected.contains(name)).map(str::to_owned).collect())
}
