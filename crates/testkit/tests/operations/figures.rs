//! What a server says of itself, before and after something happens to its mesh.

use anyhow::{Context, Result, ensure};
use loadgen::Swarm;
use serde_json::Value;

use crate::served::ServedMesh;

/// The page of metrics at one moment.
pub(crate) struct Figures(String);

impl Figures {
    pub(crate) fn of(mesh: &ServedMesh) -> Result<Figures> {
        Ok(Figures(mesh.page("/metrics")?))
    }

    /// A series as the page writes it, or the sum over all labels of a bare name.
    pub(crate) fn value(&self, series: &str) -> f64 {
        let lines = self.0.lines().filter_map(|line| line.rsplit_once(' '));
        let mine = lines.filter(|(name, _)| *name == series || name.split('{').next() == Some(series));
        mine.filter_map(|(_, value)| value.parse::<f64>().ok()).sum()
    }

    /// The memory of a stage.
    pub(crate) fn bytes(&self, part: &str) -> f64 {
        self.value(&format!("meltemi_memory_bytes{{part=\"{part}\"}}"))
    }

    pub(crate) fn resident(&self) -> f64 {
        self.value("process_resident_memory_bytes")
    }
}

/// Something that happened to a mesh, and what it led to.
pub(crate) struct Phase {
    pub(crate) after: Figures,
    /// What the proxies tell.
    pub(crate) received: Value,
}

impl Phase {
    /// A number of what the proxies tell.
    pub(crate) fn received(&self, pointer: &str) -> Result<f64> {
        self.received
            .pointer(pointer)
            .and_then(Value::as_f64)
            .with_context(|| format!("{pointer} in {}", self.received))
    }

    /// Bytes that a proxy was sent, on the average of those who were.
    pub(crate) fn bytes_each(&self) -> Result<f64> {
        Ok(self.received("/bytes")? / self.received("/reached")?.max(1.0))
    }
}

/// Does something of which these proxies should hear (`all`, `none` or a namespace), and no others.
pub(crate) async fn phase(
    mesh: &ServedMesh,
    swarm: &mut Swarm,
    audience: &str,
    act: impl FnOnce() -> Result<()>,
) -> Result<Phase> {
    swarm.execute(&format!("mark phase {audience}")).await?;
    act()?;
    // Long enough for one who should not hear, and for what comes after the debounce.
    let quiet = if audience == "none" { 1000 } else { 300 };
    let received = swarm.execute(&format!("settle 120000 {quiet} 150000")).await?;
    ensure!(received["settled"] == true && received["missed"] == 0, "not every proxy was reached: {received}");
    ensure!(received["unexpected"] == 0, "other proxies were reached, too: {received}");
    Ok(Phase { after: Figures::of(mesh)?, received })
}

/// How a service is called; another number is another rule.
pub(crate) fn rule(namespace: &str, service: &str, number: usize) -> String {
    format!(
        "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: {service}, namespace: {namespace}}}\n\
         spec: {{host: {service}, trafficPolicy: {{connectionPool: {{tcp: {{maxConnections: {}}}}}}}}}\n",
        number + 1
    )
}

/// A service beside those of the plan, and how requests to it are routed; another number is another route.
pub(crate) fn routed(namespace: &str, number: usize) -> String {
    format!(
        "{{apiVersion: v1, kind: Service, metadata: {{name: extra, namespace: {namespace}}}, spec: {{clusterIP: 10.96.251.1, ports: [{{name: http, port: 80}}]}}}}\n\
         ---\n\
         {{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {{name: extra, namespace: {namespace}}}, \
         spec: {{hosts: [extra], http: [{{timeout: {}s, route: [{{destination: {{host: extra}}}}]}}]}}}}\n",
        number + 1
    )
}
