//! How bytes on the wire and in memory grow, from the server's own metrics: each test compares two meshes, or one mesh at two times, that
//! differ in one thing. Nothing here asks for time: `cargo xtask bench` measures it, and docs/internals/performance.md has the figures.

use anyhow::{Result, ensure};
use loadgen::Swarm;
use loadgen::mesh::MeshPlan;

use crate::figures::{Figures, Phase, phase, routed, rule};
use crate::served::{ServedMesh, plan};

fn run(question: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(question).unwrap_or_else(|e| panic!("{e:#}"));
}

/// Nothing in it but services.
fn plain(services: usize, namespaces: usize, proxies: usize) -> MeshPlan {
    MeshPlan { endpoints: 1, namespaces, virtual_services: 0, destination_rules: 0, ..plan(services, proxies) }
}

async fn begin(plan: &MeshPlan, env: &[(&str, &str)]) -> Result<(ServedMesh, Swarm, Phase)> {
    let mesh = ServedMesh::new(plan, env)?;
    let mut swarm = mesh.idle_swarm()?;
    let connected = phase_of_connecting(&mesh, &mut swarm).await?;
    Ok((mesh, swarm, connected))
}

async fn phase_of_connecting(mesh: &ServedMesh, swarm: &mut Swarm) -> Result<Phase> {
    swarm.execute("mark connect all").await?;
    swarm.execute("connect").await?;
    let received = swarm.execute("settle 120000 300 150000").await?;
    ensure!(received["settled"] == true && received["missed"] == 0, "the proxies do not settle: {received}");
    Ok(Phase { after: Figures::of(mesh)?, received })
}

/// A route in a namespace changed some times, of which `audience` hears.
async fn routes(mesh: &ServedMesh, swarm: &mut Swarm, namespace: &str, audience: &str) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for round in 0..4 {
        let text = routed(namespace, round);
        phases.push(phase(mesh, swarm, audience, || mesh.write("extra.yaml", &text)).await?);
    }
    // The first one adds it.
    phases.remove(0);
    Ok(phases)
}

fn bytes_each(phases: &[Phase]) -> Result<f64> {
    phases[0].bytes_each()
}

/// 500 services in 25 namespaces, without and with a Sidecar in each of them: less is stored, encoded and sent.
#[test]
fn sidecars_cut_bytes_and_memory() {
    run(async {
        let wide = MeshPlan { scoped: false, ..plain(500, 25, 25) };
        let (mesh, mut swarm, connected) = begin(&wide, &[]).await?;
        let changed = routes(&mesh, &mut swarm, "ns-0", "all").await?;
        drop((swarm, mesh));
        let (mesh, mut swarm, scoped) = begin(&MeshPlan { scoped: true, ..wide.clone() }, &[]).await?;
        let changed_scoped = routes(&mesh, &mut swarm, "ns-0", "ns-0").await?;

        let clusters = |phase: &Phase| phase.received("/types/CDS/resources").map(|all| all / 25.0);
        ensure!(clusters(&connected)? > 500.0, "{}", connected.received);
        ensure!((20.0..40.0).contains(&clusters(&scoped)?), "{}", scoped.received);
        let (whole, part) = (connected.bytes_each()?, scoped.bytes_each()?);
        ensure!(whole < 10e6 && part < 500e3, "{whole} and {part} bytes for a proxy");
        ensure!(whole / part > 12.0, "20 of 500 services are {part} of {whole} bytes");

        let cached = |phase: &Phase| phase.after.bytes("push_context") + phase.after.bytes("serialization");
        ensure!(cached(&scoped) * 2.0 < cached(&connected), "{} against {} bytes", cached(&scoped), cached(&connected));
        // A change reaches one namespace of 25.
        let reached = |phases: &[Phase]| phases[0].received("/reached");
        ensure!(reached(&changed)? == 25.0 && reached(&changed_scoped)? == 1.0, "{}", changed_scoped[0].received);
        Ok(())
    });
}

/// A proxy that sees 20 of 1,000 services is sent what it is sent in a mesh of 20, at first and after a change.
#[test]
fn a_thousand_services_scoped_to_twenty_cost_what_twenty_cost() {
    run(async {
        let (mesh, mut swarm, few) = begin(&plain(20, 1, 20), &[]).await?;
        let changed = routes(&mesh, &mut swarm, "ns-0", "ns-0").await?;
        drop((swarm, mesh));
        let (mesh, mut swarm, many) = begin(&plain(1000, 50, 20), &[]).await?;
        let changed_of_many = routes(&mesh, &mut swarm, "ns-0", "ns-0").await?;
        let (small, large) = (few.bytes_each()?, many.bytes_each()?);
        ensure!(large < small * 1.3, "{large} bytes for a proxy, {small} in the small mesh");
        ensure!(bytes_each(&changed_of_many)? < bytes_each(&changed)? * 1.3, "{}", changed_of_many[0].received);
        Ok(())
    });
}

/// 40 workloads with 1 and with 20 replicas each: what is encoded is shared, and each proxy is sent as much.
#[test]
fn replicas_cost_writing_and_nothing_else() {
    run(async {
        let (mesh, mut swarm, few) = begin(&plain(40, 4, 40), &[]).await?;
        let changed = routes(&mesh, &mut swarm, "istio-system", "all").await?;
        drop((swarm, mesh));
        let (mesh, mut swarm, many) = begin(&plain(40, 4, 800), &[]).await?;
        let changed_of_many = routes(&mesh, &mut swarm, "istio-system", "all").await?;
        let (small, large) = (bytes_each(&changed)?, bytes_each(&changed_of_many)?);
        ensure!(large < small * 1.3, "a change: {large} bytes for each of 800 proxies, {small} for each of 40");
        let (small, large) = (few.after.bytes("serialization"), many.after.bytes("serialization"));
        ensure!(large < small * 4.0, "{large} encoded bytes for 800 proxies, {small} for 40");
        // Clusters, load assignments, listeners and routes of each.
        let state = (many.after.bytes("delta") + many.after.bytes("ack")) / 800.0 / 4.0;
        ensure!(state < 2048.0, "{state} bytes for a type of a proxy");
        ensure!(many.after.bytes("push_queue") == 0.0, "nobody waits, and yet the queue has memory");
        Ok(())
    });
}

/// One stream at a time, and all of them: every proxy hears of every change, and is sent as much.
#[test]
fn a_push_reaches_every_proxy_whatever_the_throttle() {
    run(async {
        let mut bytes = Vec::new();
        for throttle in ["1", "1000"] {
            let (mesh, mut swarm, _) = begin(&plain(40, 4, 400), &[("PILOT_PUSH_THROTTLE", throttle)]).await?;
            let phases = routes(&mesh, &mut swarm, "istio-system", "all").await?;
            ensure!(phases.iter().all(|phase| phase.received["reached"] == 400), "{}", phases[0].received);
            bytes.push(bytes_each(&phases)?);
        }
        let [narrow, wide] = bytes[..] else { unreachable!("two were measured") };
        ensure!(narrow < wide * 1.3 && wide < narrow * 1.3, "{narrow} bytes one at a time, {wide} all at once");
        Ok(())
    });
}

/// Three of 400 services change, of which nobody here is a replica: each proxy is sent three clusters, not 400.
#[test]
fn what_did_not_change_is_not_sent() {
    run(async {
        let (mesh, mut swarm, connected) = begin(&MeshPlan { scoped: false, ..plain(400, 4, 4) }, &[]).await?;
        let rules: Vec<String> = (0..3).map(|n| rule(&format!("ns-{n}"), &format!("s-{}", 100 + n), n)).collect();
        let changed = phase(&mesh, &mut swarm, "all", || mesh.write("changed.yaml", &rules.join("---\n"))).await?;
        ensure!(changed.received("/types/CDS/resources")? == 12.0, "{}", changed.received);
        let (whole, part) = (connected.bytes_each()?, changed.bytes_each()?);
        // In proportion to what changed, with the load assignments that a changed cluster waits for.
        ensure!(whole / part > 400.0 / 3.0, "{part} of {whole} bytes");
        Ok(())
    });
}

/// ServiceEntries with many addresses, policies for each workload and an EnvoyFilter for everybody: for a change of something else as much
/// is sent as without them.
#[test]
fn a_change_does_not_pay_for_what_it_does_not_touch() {
    run(async {
        let (mesh, mut swarm, _) = begin(&plain(40, 4, 40), &[]).await?;
        let before = routes(&mesh, &mut swarm, "istio-system", "all").await?;
        let heavy = [entries(100, 50), policies(100), FILTER.to_owned()].concat();
        phase(&mesh, &mut swarm, "all", || mesh.write("heavy.yaml", &heavy)).await?;
        let after = routes(&mesh, &mut swarm, "istio-system", "all").await?;
        for phase in before.iter().chain(&after) {
            let types = phase.received["types"].as_object();
            ensure!(types.is_some_and(|types| types.keys().eq(["RDS"])), "a change of routes: {}", phase.received);
        }
        Ok(())
    });
}

fn entries(count: usize, addresses: usize) -> String {
    let entry = |n: usize| {
        let endpoints: Vec<String> = (0..addresses).map(|at| format!("{{address: 10.200.{n}.{at}}}")).collect();
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: entry-{n}, namespace: istio-system}}\n\
             spec: {{hosts: [entry-{n}.example.com], resolution: STATIC, location: MESH_INTERNAL, ports: [{{number: 80, name: http, protocol: HTTP}}], \
             endpoints: [{}]}}\n---\n",
            endpoints.join(", ")
        )
    };
    (0..count).map(entry).collect()
}

fn policies(count: usize) -> String {
    let policy = |n: usize| {
        format!(
            "apiVersion: security.istio.io/v1\nkind: AuthorizationPolicy\nmetadata: {{name: policy-{n}, namespace: ns-{}}}\n\
             spec: {{selector: {{matchLabels: {{app: s-{}}}}}, rules: [{{from: [{{source: {{namespaces: [ns-{n}]}}}}]}}]}}\n---\n",
            n % 4,
            n % 40
        )
    };
    (0..count).map(policy).collect()
}

const FILTER: &str = "apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: everybody, namespace: istio-system}
spec:
  configPatches:
  - applyTo: CLUSTER
    patch: {operation: MERGE, value: {connect_timeout: 5s}}
";

/// An EnvoyFilter reaches the proxies of its namespace, and one in the root namespace all.
#[test]
fn an_envoy_filter_concerns_those_it_selects() {
    run(async {
        let (mesh, mut swarm, _) = begin(&plain(40, 4, 40), &[]).await?;
        let narrow = FILTER.replace("istio-system", "ns-1");
        let narrow = phase(&mesh, &mut swarm, "ns-1", || mesh.write("filter.yaml", &narrow)).await?;
        let broad = FILTER.replace("connect_timeout: 5s", "per_connection_buffer_limit_bytes: 4096");
        let broad = phase(&mesh, &mut swarm, "all", || mesh.write("broad.yaml", &broad)).await?;
        ensure!(narrow.received("/reached")? == 10.0 && broad.received("/reached")? == 40.0, "{}", narrow.received);
        ensure!(narrow.received("/bytes")? * 2.0 < broad.received("/bytes")?, "{} {}", narrow.received, broad.received);
        Ok(())
    });
}

/// 1,000 services, and 250 endpoints of one more. 10,000 pods are in `load`.
#[test]
fn objects_are_small() {
    run(async {
        let mesh = ServedMesh::new(&plain(1000, 20, 0), &[])?;
        let figures = Figures::of(&mesh)?;
        ensure!(figures.value("pilot_services") > 1000.0, "not all services are there");
        ensure!(figures.bytes("informer_cache") < 20e6, "{} bytes of objects", figures.bytes("informer_cache"));
        ensure!(figures.resident() < 300e6, "{} bytes in all", figures.resident());
        let before = figures.bytes("informer_cache");
        let endpoints: Vec<String> =
            (0..250).map(|n| format!("{{addresses: [10.201.0.{n}], conditions: {{ready: true}}}}")).collect();
        let slice = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: large, namespace: ns-0, labels: {{kubernetes.io/service-name: s-0}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 80}}]\nendpoints: [{}]\n",
            endpoints.join(", ")
        );
        mesh.write("large.yaml", &slice)?;
        mesh.wait_for("the slice", || Ok(Figures::of(&mesh)?.bytes("informer_cache") > before))?;
        let large = Figures::of(&mesh)?.bytes("informer_cache") - before;
        ensure!(large < 100e3, "{large} bytes for 250 endpoints");
        Ok(())
    });
}
