//! Addresses of Services of type LoadBalancer: each gets the last number of its cluster address, in another network. kube-proxy does the rest.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::node::Node;
use super::programs;

pub(super) fn run(node: Node) -> Result<()> {
    let mut watch = kubectl(node)?;
    watch.args(["get", "services", "--all-namespaces", "--watch", "--output=json"]).stdout(Stdio::piped());
    let mut child = watch.spawn().context("start kubectl")?;
    let events = child.stdout.take().context("its output is piped")?;
    for service in serde_json::Deserializer::from_reader(events).into_iter::<Value>() {
        let service = service.context("read a Service")?;
        if let Some(address) = missing_address(node, &service) {
            give(node, &service, &address)?;
        }
    }
    // The API server went away; process 1 starts this again.
    bail!("the watch of Services ended ({})", child.wait()?)
}

/// `None`: it needs none, or has one.
fn missing_address(node: Node, service: &Value) -> Option<String> {
    let has_one = service["status"]["loadBalancer"]["ingress"].as_array().is_some_and(|list| !list.is_empty());
    if service["spec"]["type"] != "LoadBalancer" || has_one {
        return None;
    }
    let (network, last) = service["spec"]["clusterIP"].as_str()?.rsplit_once('.')?;
    (network == node.services()).then(|| format!("{}.{last}", node.balancers()))
}

fn give(node: Node, service: &Value, address: &str) -> Result<()> {
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    let named = |field: &str| service["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mut patch = kubectl(node)?;
    patch.args(["patch", "service", &named("name"), "--namespace", &named("namespace")]);
    patch.args(["--subresource=status", "--type=merge", "--patch", &status.to_string()]);
    // A Service that is gone by now is none to complain about.
    patch.status().context("run kubectl patch").map(|_| ())
}

fn kubectl(node: Node) -> Result<Command> {
    let mut kubectl = Command::new(programs::path("kubectl")?);
    kubectl.arg("--kubeconfig").arg(node.kubeconfig()?);
    Ok(kubectl)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_balancer_without_address_gets_that_of_its_service() {
        let node: Node = "3".parse().unwrap();
        let service =
            |kind: &str, status: Value| json!({"spec": {"type": kind, "clusterIP": "10.211.3.77"}, "status": status});
        assert_eq!(missing_address(node, &service("LoadBalancer", json!({}))).as_deref(), Some("10.212.3.77"));
        assert_eq!(missing_address(node, &service("ClusterIP", json!({}))), None);
        let given = json!({"loadBalancer": {"ingress": [{"ip": "10.212.3.77"}]}});
        assert_eq!(missing_address(node, &service("LoadBalancer", given)), None);
    }
}
