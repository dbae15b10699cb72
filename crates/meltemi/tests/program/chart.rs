//! The Helm chart as helm renders it: names and ports of istiod, a hardened pod, valid values. No cluster is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use config::yaml::{Scalars, documents};
use serde_json::{Value, json};
use testkit::environment;

use crate::run::{as_text, folder, run};

/// `None`: there is no helm; the skip is reported.
pub(crate) fn helm(words: &[&str], values: &[&Path]) -> Option<Output> {
    let Some(program) = environment::helm() else {
        testkit::skip("the chart: there is no helm; cargo xtask setup builds it where Go is");
        return None;
    };
    let (name, rest) = words.split_first().expect("a command");
    let mut command = Command::new(program);
    // Whatever the user has configured, no cluster may be reached.
    command.env("KUBECONFIG", "/dev/null").arg(name).args(rest);
    for file in values {
        command.arg("-f").arg(file);
    }
    Some(command.output().expect("helm starts"))
}

pub(crate) fn chart() -> PathBuf {
    environment::repository().join("deploy/helm/meltemi")
}

/// The objects that helm renders, after it found nothing to complain of.
pub(crate) fn rendered(values: &[&Path], more: &[&str]) -> Option<Vec<Value>> {
    let chart = chart();
    let lint = [&["lint", as_text(&chart), "--strict", "--quiet", "-n", "istio-system"], more].concat();
    let linted = helm(&lint, values)?;
    let output = String::from_utf8_lossy(&linted.stdout) + String::from_utf8_lossy(&linted.stderr);
    assert!(linted.status.success(), "helm lint {values:?} {more:?}: {output}");
    let template = [&["template", "istiod", as_text(&chart), "-n", "istio-system"], more].concat();
    let made = helm(&template, values)?;
    assert!(made.status.success(), "helm template {values:?}: {}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout).expect("UTF-8");
    Some(documents(&text, Scalars::Objects).map(|it| it.expect("helm writes YAML").to_json()).collect())
}

pub(crate) fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

fn kinds(objects: &[Value]) -> BTreeSet<&str> {
    objects.iter().filter_map(|it| it["kind"].as_str()).collect()
}

#[test]
fn names_ports_labels_and_arguments_are_istiods() {
    let Some(objects) = rendered(&[], &[]) else { return };
    let expected = "ClusterRole ClusterRoleBinding ConfigMap Deployment HorizontalPodAutoscaler MutatingWebhookConfiguration PodDisruptionBudget Role RoleBinding \
                    Service ServiceAccount ValidatingWebhookConfiguration";
    assert_eq!(kinds(&objects), expected.split_whitespace().collect());
    let deployment = find(&objects, "Deployment", "istiod");
    assert_eq!(deployment["spec"]["selector"], json!({ "matchLabels": { "istio": "pilot" } }));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (key, value) in
        [("app", "istiod"), ("istio", "pilot"), ("istio.io/rev", "default"), ("sidecar.istio.io/inject", "false")]
    {
        assert_eq!(labels[key], value, "{key}");
    }
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["name"], "discovery");
    let args = json!([
        "discovery",
        "--monitoringAddr=:15014",
        "--log_output_level=default:info",
        "--domain",
        "cluster.local",
        "--keepaliveMaxServerConnectionAge",
        "30m"
    ]);
    assert_eq!(container["args"], args);
    let variables: BTreeSet<&str> = array(&container["env"]).iter().filter_map(|it| it["name"].as_str()).collect();
    for name in
        ["REVISION", "POD_NAME", "POD_NAMESPACE", "SERVICE_ACCOUNT", "KUBECONFIG", "CLUSTER_ID", "PILOT_TRACE_SAMPLING"]
    {
        assert!(variables.contains(name), "{name} is not in {variables:?}");
    }
    assert_eq!(variables.len(), array(&container["env"]).len(), "a variable is there twice");
    let service = &find(&objects, "Service", "istiod")["spec"];
    let ports: Vec<_> = array(&service["ports"]).iter().map(|it| (it["name"].as_str(), it["port"].as_u64())).collect();
    let expected = [("grpc-xds", 15010), ("https-dns", 15012), ("https-webhook", 443), ("http-monitoring", 15014)];
    assert_eq!(ports, expected.map(|(name, port)| (Some(name), Some(port))));
    assert_eq!(service["ports"][2]["targetPort"], 15017);
    assert_eq!(service["selector"], json!({ "app": "istiod", "istio": "pilot" }));
    let mesh = find(&objects, "ConfigMap", "istio")["data"]["mesh"].as_str().expect("a text");
    assert!(mesh.contains("discoveryAddress: istiod.istio-system.svc:15012"), "{mesh}");
}

#[test]
fn a_revision_and_its_tags_are_in_all_names() {
    let Some(objects) = rendered(&[], &["--set", "revision=canary,revisionTags={stable,next}"]) else { return };
    let deployment = find(&objects, "Deployment", "istiod-canary");
    let selector = json!({ "app": "istiod", "istio.io/rev": "canary" });
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], selector);
    assert_eq!(
        deployment["spec"]["template"]["metadata"]["labels"]["istio"], "istiod",
        "not one of the default's pods"
    );
    for name in ["istiod-canary", "istiod-revision-tag-stable", "istiod-revision-tag-next"] {
        assert_eq!(find(&objects, "Service", name)["spec"]["selector"], selector);
    }
    assert_eq!(find(&objects, "Service", "istiod-revision-tag-next")["metadata"]["labels"]["istio.io/tag"], "next");
    let mesh = find(&objects, "ConfigMap", "istio-canary")["data"]["mesh"].as_str().expect("a text");
    assert!(mesh.contains("discoveryAddress: istiod-canary.istio-system.svc:15012"), "{mesh}");
    for (name, revision) in [("istio-sidecar-injector-canary", "canary"), ("istio-revision-tag-stable", "stable")] {
        let webhooks = array(&find(&objects, "MutatingWebhookConfiguration", name)["webhooks"]);
        let names: Vec<_> = webhooks.iter().map(|it| it["name"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["rev.namespace.sidecar-injector.istio.io", "rev.object.sidecar-injector.istio.io"]);
        assert_eq!(webhooks[0]["clientConfig"]["service"]["name"], "istiod-canary");
        let ours = json!({ "key": "istio.io/rev", "operator": "In", "values": [revision] });
        assert_eq!(webhooks[0]["namespaceSelector"]["matchExpressions"][0], ours);
    }
    let default = |objects: &[Value]| objects.iter().filter(|it| it["metadata"]["name"] == "istiod").count();
    assert_eq!(default(&objects), 0);
    let Some(written) = rendered(&[], &["--set", "revision=default"]) else { return };
    assert_eq!(Some(written), rendered(&[], &[]), "the default revision has one form");
}

#[test]
fn the_pod_has_no_unneeded_privileges() {
    let Some(objects) = rendered(&[], &[]) else { return };
    let pod = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"], json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } }));
    let container = &pod["containers"][0];
    let expected = json!({ "allowPrivilegeEscalation": false, "privileged": false, "readOnlyRootFilesystem": true,
        "runAsNonRoot": true, "capabilities": { "drop": ["ALL"] } });
    assert_eq!(container["securityContext"], expected);
    let volume = |mount: &Value| {
        let found = array(&pod["volumes"]).iter().find(|it| it["name"] == mount["name"]);
        found.unwrap_or_else(|| panic!("no volume {mount}")).clone()
    };
    for mount in array(&container["volumeMounts"]) {
        assert!(mount["readOnly"] == true || volume(mount)["emptyDir"]["medium"] == "Memory", "{mount}");
    }
    assert_eq!(container["readinessProbe"]["httpGet"], json!({ "path": "/ready", "port": 8080 }));
    assert_eq!(container["livenessProbe"]["httpGet"], json!({ "path": "/version", "port": 15014 }));
    assert_eq!(array(&pod["topologySpreadConstraints"]).len(), 2);
}

#[test]
fn optional_objects_follow_their_values() {
    let set = "serviceMonitor.enabled=true,global.networkPolicy.enabled=true,autoscaleEnabled=false,replicaCount=1,\
               global.configValidation=false,configMap=false,global.omitSidecarInjectorConfigMap=true,\
               global.operatorManageWebhooks=true,global.priorityClassName=system-cluster-critical";
    let Some(objects) = rendered(&[], &["--set", set]) else { return };
    let expected = "ClusterRole ClusterRoleBinding Deployment NetworkPolicy Role RoleBinding Service ServiceAccount ServiceMonitor";
    assert_eq!(kinds(&objects), expected.split_whitespace().collect(), "no budget for a single replica");
    let pod = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"];
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    let policy = &find(&objects, "NetworkPolicy", "istiod")["spec"];
    let ports = array(&policy["ingress"]).iter().flat_map(|rule| array(&rule["ports"]));
    let ports: BTreeSet<_> = ports.filter_map(|it| it["port"].as_u64()).collect();
    assert_eq!(ports, BTreeSet::from([8080, 15010, 15012, 15014, 15017]));
}

#[test]
fn the_network_policy_has_no_empty_peers() {
    let enabled = "global.networkPolicy.enabled=true";
    let Some(objects) = rendered(&[], &["--set", enabled]) else { return };
    for rule in array(&find(&objects, "NetworkPolicy", "istiod")["spec"]["ingress"]) {
        assert!(!array(&rule["from"]).is_empty(), "{rule}");
        assert!(
            array(&rule["from"]).iter().all(|peer| peer.as_object().is_some_and(|peer| !peer.is_empty())),
            "{rule}"
        );
    }
    for set in ["networkPolicy.proxies=[]", "networkPolicy.monitoring=[{}]"] {
        let chart = chart();
        let words = ["template", "istiod", as_text(&chart), "--set", enabled, "--set-json", set];
        let Some(out) = helm(&words, &[]) else { return };
        let errors = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && errors.contains("networkPolicy"), "{set}: {errors}");
    }
}

#[test]
fn the_memory_limit_is_that_of_the_admission_of_streams() {
    for (set, limit) in [
        ("traceSampling=1", json!("2048Mi")),
        ("resources.requests.memory=4Gi", json!("8192Mi")),
        ("resources.limits.memory=3Gi", json!("3Gi")),
        ("memoryLimit=5G", json!("5G")),
        ("memoryLimit=none", Value::Null),
    ] {
        let Some(objects) = rendered(&[], &["--set", set]) else { return };
        let container = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"]["memory"], limit, "{set}");
        let variable = array(&container["env"]).iter().find(|it| it["name"] == "MELTEMI_MEMORY_LIMIT");
        let source = json!({ "resourceFieldRef": { "containerName": "discovery", "resource": "limits.memory" } });
        assert_eq!(variable.map(|it| &it["valueFrom"]), (!limit.is_null()).then_some(&source), "{set}");
    }
}

/// What doctor compares the CPU with is what the container requests, whoever changes it in the cluster.
#[test]
fn the_cpu_request_is_that_of_the_container() {
    let env = |set: &str| {
        let objects = rendered(&[], &["--set", set])?;
        let container = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0];
        Some(array(&container["env"]).to_vec())
    };
    let Some(given) = env("traceSampling=1") else { return };
    let at = |name: &str| given.iter().position(|it| it["name"] == name).unwrap_or_else(|| panic!("{name} is missing"));
    let source = json!({ "containerName": "discovery", "resource": "requests.cpu", "divisor": "1m" });
    assert_eq!(given[at("CPU_REQUEST_MILLICORES")]["valueFrom"]["resourceFieldRef"], source);
    assert_eq!(given[at("MELTEMI_CPU_REQUEST")]["value"], "$(CPU_REQUEST_MILLICORES)m");
    assert!(at("CPU_REQUEST_MILLICORES") < at("MELTEMI_CPU_REQUEST"), "a reference needs what it names before it");
    let own = env("env.MELTEMI_CPU_REQUEST=2").expect("helm is there");
    let own: Vec<_> = own.iter().filter(|it| it["name"] == "MELTEMI_CPU_REQUEST").collect();
    assert_eq!((own.len(), &own[0]["value"]), (1, &json!("2")));
}

#[test]
fn the_plaintext_port_can_be_turned_off() {
    let set = "plaintextXds.enabled=false,global.networkPolicy.enabled=true,revisionTags={stable}";
    let Some(objects) = rendered(&[], &["--set", set]) else { return };
    let container = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0];
    assert!(array(&container["args"]).contains(&json!("--grpcAddr=")));
    // The injector's template for gRPC without a proxy names the port, as Istio's does; it has to be replaced by who uses it.
    for object in objects.iter().filter(|object| object["kind"] != "ConfigMap") {
        assert!(!object.to_string().contains("15010"), "{object}");
    }
}

#[test]
fn admission_policies_are_rendered() {
    let (kind, name) = ("ValidatingAdmissionPolicy", "gateways.meltemi.networking.istio.io");
    let Some(objects) = rendered(&[], &[]) else { return };
    assert!(!kinds(&objects).contains(kind));
    let Some(objects) = rendered(&[], &["--set", "admissionPolicy.enabled=true"]) else { return };
    let rules = &find(&objects, kind, name)["spec"]["matchConstraints"]["resourceRules"];
    assert_eq!(rules[0]["resources"], json!(["gateways"]));
    assert_eq!(find(&objects, &format!("{kind}Binding"), name)["spec"]["policyName"], name);
}

#[test]
fn env_values_override_the_chart() {
    let Some(objects) = rendered(&[], &["--set-string", "env.CLUSTER_ID=east,env.PILOT_DEBOUNCE_MAX=5s"]) else {
        return;
    };
    let container = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0];
    let value = |name: &str| {
        let found: Vec<_> = array(&container["env"]).iter().filter(|it| it["name"] == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        found[0]["value"].clone()
    };
    assert_eq!((value("CLUSTER_ID"), value("PILOT_DEBOUNCE_MAX")), (json!("east"), json!("5s")));
}

#[test]
fn the_history_has_its_limits_and_a_volume() {
    let file = folder(&[("values.yaml", "history: {bytes: 67108864, dirBytes: '1073741824'}")]);
    let pod = |set: &str, values: &[&Path]| {
        let objects = rendered(values, &["--set", set])?;
        Some(find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"].clone())
    };
    let env = |pod: &Value| -> BTreeMap<String, String> {
        let named = array(&pod["containers"][0]["env"]).iter().filter_map(|it| {
            let name = it["name"].as_str().filter(|name| name.starts_with("MELTEMI_HISTORY_"))?;
            Some((name.to_owned(), it["value"].as_str()?.to_owned()))
        });
        named.collect()
    };
    let Some(plain) = pod("traceSampling=1", &[]) else { return };
    assert_eq!(env(&plain), BTreeMap::new());
    let set = "history.age=72h,history.volume.emptyDir.sizeLimit=2Gi";
    let kept = pod(set, &[&file.path().join("values.yaml")]).expect("helm is there");
    let expected =
        [("AGE", "72h"), ("BYTES", "67108864"), ("DIR", "/var/lib/meltemi/history"), ("DIR_BYTES", "1073741824")];
    let expected = expected.map(|(name, value)| (format!("MELTEMI_HISTORY_{name}"), value.to_owned()));
    assert_eq!(env(&kept), expected.into());
    let mount = json!({ "name": "history", "mountPath": "/var/lib/meltemi" });
    assert!(array(&kept["containers"][0]["volumeMounts"]).contains(&mount), "{kept:#}");
    let volume = json!({ "name": "history", "emptyDir": { "sizeLimit": "2Gi" } });
    assert!(array(&kept["volumes"]).contains(&volume), "{kept:#}");
    assert_eq!(env(&pod("history.bytes=0", &[]).expect("helm")), [("MELTEMI_HISTORY_BYTES".into(), "0".into())].into());
}

#[test]
fn an_external_authority_is_named_by_a_value() {
    let address = "cert-manager-istio-csr.cert-manager.svc:443";
    let set = format!("externalCa.address={address},externalCa.tlsSecret=made");
    let Some(objects) = rendered(&[], &["--set", &set]) else { return };
    let pod = &find(&objects, "Deployment", "istiod")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for (name, value) in [("EXTERNAL_CA", "true"), ("CA_ADDR", address)] {
        assert!(array(&container["env"]).contains(&json!({ "name": name, "value": value })), "{name}");
    }
    let mount = json!({ "name": "istio-csr-dns-cert", "mountPath": "/var/run/secrets/istiod/tls", "readOnly": true });
    assert!(array(&container["volumeMounts"]).contains(&mount));
    let secret = json!({ "name": "istio-csr-dns-cert", "secret": { "secretName": "made", "optional": true } });
    assert!(array(&pod["volumes"]).contains(&secret));
}

#[test]
fn every_recipe_renders_with_a_revision_of_its_own() {
    let mut revisions = BTreeMap::new();
    let recipes = environment::repository().join("deploy/helm/recipes");
    for kind in ["namespace", "region", "workload"] {
        for file in std::fs::read_dir(recipes.join(kind)).expect("a folder for each way to shard").flatten() {
            let path = file.path();
            let Some(objects) = rendered(&[&path], &[]) else { return };
            let deployment = objects.iter().find(|it| it["kind"] == "Deployment").expect("a Deployment");
            let name = deployment["metadata"]["name"].to_string();
            assert_eq!(revisions.insert(name, path.clone()), None, "{path:?} has the revision of another");
        }
    }
    assert_eq!(revisions.len(), 8, "{revisions:?}");
}

#[test]
fn values_of_an_operator_fit_the_chart() {
    let operator = "
apiVersion: install.istio.io/v1alpha1
kind: IstioOperator
spec:
  profile: demo
  revision: canary
  meshConfig: {accessLogFile: /dev/stderr, discoverySelectors: [{matchLabels: {mesh: in}}]}
  components:
    pilot:
      k8s:
        resources: {requests: {cpu: 300m}}
        hpaSpec: {minReplicas: 3, maxReplicas: 7}
        env: [{name: PILOT_DEBOUNCE_AFTER, value: 50ms}]
        podDisruptionBudget: {maxUnavailable: 1}
        strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
    ingressGateways: [{name: in, enabled: true}]
  values:
    global: {logAsJson: true, meshNetworks: {n: {endpoints: [{fromRegistry: r}]}}, imagePullSecrets: [pull], proxy: {logLevel: trace}}
    sidecarInjectorWebhook: {rewriteAppHTTPProbe: false, enableNamespacesByDefault: true}
    pilot: {autoscaleEnabled: true, traceSampling: 5, nodeSelector: {pool: mesh}}
";
    let dir = folder(&[("op.yaml", operator)]);
    let ran = run(&["values", "-f", as_text(&dir.path().join("op.yaml"))]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("op.yaml:16:5: spec.components.ingressGateways: left out: "), "{}", ran.stderr);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    let values = dir.path().join("values.yaml");
    std::fs::write(&values, &ran.stdout).expect("a file");
    let Some(objects) = rendered(&[&values], &[]) else { return };
    let deployment = &find(&objects, "Deployment", "istiod-canary")["spec"];
    assert_eq!(deployment["strategy"]["rollingUpdate"], json!({ "maxSurge": 1, "maxUnavailable": 0 }));
    let container = &deployment["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"]["requests"], json!({ "cpu": "300m", "memory": "100Mi" }));
    assert!(array(&container["args"]).contains(&json!("--log_as_json")));
    assert!(array(&container["env"]).contains(&json!({ "name": "PILOT_DEBOUNCE_AFTER", "value": "50ms" })));
    let scaler = &find(&objects, "HorizontalPodAutoscaler", "istiod-canary")["spec"];
    assert_eq!((&scaler["minReplicas"], &scaler["maxReplicas"]), (&json!(3), &json!(7)));
    assert_eq!(find(&objects, "PodDisruptionBudget", "istiod-canary")["spec"]["maxUnavailable"], 1);
    let mesh = find(&objects, "ConfigMap", "istio-canary")["data"]["mesh"].as_str().expect("a text");
    assert!(mesh.contains("accessLogFile: /dev/stderr") && mesh.contains("discoverySelectors:"), "{mesh}");
    let injected =
        find(&objects, "ConfigMap", "istio-sidecar-injector-canary")["data"]["values"].as_str().expect("a text");
    let injected: serde_json::Value = serde_json::from_str(injected).expect("JSON");
    assert_eq!(injected["global"]["proxy"]["logLevel"], "trace");
    assert_eq!(injected["sidecarInjectorWebhook"]["rewriteAppHTTPProbe"], json!(false));
}

#[test]
fn a_value_of_the_wrong_type_is_rejected_by_name() {
    for (set, named) in [
        ("replicaCount=zero", "replicaCount"),
        ("revision=Canary", "revision"),
        ("env.A.b=c", "env"),
        ("image=pilot", "image"),
        ("history.age=soon", "history"),
    ] {
        let chart = chart();
        let Some(out) = helm(&["template", "istiod", as_text(&chart), "--set", set], &[]) else { return };
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && stderr.contains(named), "{set}: {stderr}");
    }
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
