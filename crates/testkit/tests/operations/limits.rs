//! What costs how much, from the server's own metrics: each test compares two meshes, or one mesh at two times, that differ in one thing. Bounds
//! are ratios of bytes and of processor time, which hold on a busy machine, too; sizes beyond a test are in docs/performance.md.

use anyhow::{Result, ensure};
use loadgen::Swarm;
use loadgen::mesh::Plan;
use testkit::say;

use crate::figures::{Figures, Phase, phase, routed, rule};
use crate::world::{World, plan};

fn run(question: impl Future<Output = Result<()>>) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(question).unwrap_or_else(|e| panic!("{e:#}"));
}

/// Nothing in it but services.
fn plain(services: usize, namespaces: usize, proxies: usize) -> Plan {
    Plan { endpoints: 1, namespaces, virtual_services: 0, destination_rules: 0, ..plan(services, proxies) }
}

async fn begin(plan: &Plan, env: &[(&str, &str)]) -> Result<(World, Swarm, Phase)> {
    let world = World::new(plan, env)?;
    let mut swarm = world.idle_swarm()?;
    let connected = phase_of_connecting(&world, &mut swarm).await?;
    Ok((world, swarm, connected))
}

async fn phase_of_connecting(world: &World, swarm: &mut Swarm) -> Result<Phase> {
    let before = Figures::of(world)?;
    swarm.obey("mark connect all").await?;
    swarm.obey("connect").await?;
    let heard = swarm.obey("settle 120000 300 150000").await?;
    ensure!(heard["settled"] == true && heard["missed"] == 0, "the proxies do not settle: {heard}");
    Ok(Phase { before, after: Figures::of(world)?, heard })
}

/// A route in a namespace changed some times, of which `audience` hears.
async fn routes(world: &World, swarm: &mut Swarm, namespace: &str, audience: &str) -> Result<Vec<Phase>> {
    let mut phases = Vec::new();
    for round in 0..4 {
        let text = routed(namespace, round);
        phases.push(phase(world, swarm, audience, || world.write("extra.yaml", &text)).await?);
    }
    // The first one adds it.
    phases.remove(0);
    Ok(phases)
}

/// Of several times the shortest: what others did to the machine is not in it.
fn least(phases: &[Phase], stage: &str) -> f64 {
    phases.iter().map(|phase| phase.cpu(stage)).fold(f64::INFINITY, f64::min)
}

/// All that the server did.
const PROCESS: &str = "process_cpu_seconds_total";

fn bytes_each(phases: &[Phase]) -> Result<f64> {
    phases[0].bytes_each()
}

/// 500 services in 25 namespaces, without and with a Sidecar in each of them: less is made, held, encoded and sent.
#[test]
fn sidecars_cut_work_bytes_and_memory() {
    run(async {
        let wide = Plan { scoped: false, ..plain(500, 25, 25) };
        let (world, mut swarm, connected) = begin(&wide, &[]).await?;
        let changed = routes(&world, &mut swarm, "ns-0", "all").await?;
        drop((swarm, world));
        let (world, mut swarm, scoped) = begin(&Plan { scoped: true, ..wide.clone() }, &[]).await?;
        let changed_scoped = routes(&world, &mut swarm, "ns-0", "ns-0").await?;

        let clusters = |phase: &Phase| phase.heard("/types/CDS/resources").map(|all| all / 25.0);
        ensure!(clusters(&connected)? > 500.0, "{}", connected.heard);
        ensure!((20.0..40.0).contains(&clusters(&scoped)?), "{}", scoped.heard);
        let (whole, part) = (connected.bytes_each()?, scoped.bytes_each()?);
        ensure!(whole < 10e6 && part < 500e3, "{whole} and {part} bytes for a proxy");
        ensure!(whole / part > 12.0, "20 of 500 services are {part} of {whole} bytes");

        let held = |phase: &Phase| phase.after.held("push_context") + phase.after.held("serialization");
        ensure!(held(&scoped) * 2.0 < held(&connected), "{} against {} bytes", held(&scoped), held(&connected));
        let (before, after) = (connected.cpu("push_context"), scoped.cpu("push_context"));
        // Less than of a change, below: a cluster is made once, for however many scopes.
        ensure!(after < before * 0.6, "what they hold is made in {after} s scoped, in {before} s without");
        drop((swarm, world));
        let (mut before, mut after) = (connected.grew(PROCESS), scoped.grew(PROCESS));
        // A starved machine adds to both: the least of some tries is what it takes.
        for _ in 0..3 {
            if after < before * 0.6 {
                break;
            }
            before = before.min(cost(&wide).await?);
            after = after.min(cost(&Plan { scoped: true, ..wide.clone() }).await?);
        }
        ensure!(after < before * 0.6, "all of it: {after} s scoped, {before} s without");
        let (before, after) = (least(&changed, "push_context"), least(&changed_scoped, "push_context"));
        say(&format!("rebuilt after a change in {after} s scoped, in {before} s without"));
        ensure!(after < before * 0.4, "a change: {after} s scoped, {before} s without");
        Ok(())
    });
}

/// Processor time of a start and of all proxies that connect.
async fn cost(plan: &Plan) -> Result<f64> {
    let (_world, _swarm, connected) = begin(plan, &[]).await?;
    Ok(connected.grew(PROCESS))
}

/// A proxy that sees 20 of 1,000 services is sent what it is sent in a mesh of 20, and a change costs about the same.
#[test]
fn a_thousand_services_scoped_to_twenty_cost_what_twenty_cost() {
    run(async {
        let (world, mut swarm, few) = begin(&plain(20, 1, 20), &[]).await?;
        let changed = routes(&world, &mut swarm, "ns-0", "ns-0").await?;
        drop((swarm, world));
        let (world, mut swarm, many) = begin(&plain(1000, 50, 20), &[]).await?;
        let changed_of_many = routes(&world, &mut swarm, "ns-0", "ns-0").await?;
        let (small, large) = (few.bytes_each()?, many.bytes_each()?);
        ensure!(large < small * 1.3, "{large} bytes for a proxy, {small} in the small mesh");
        ensure!(bytes_each(&changed_of_many)? < bytes_each(&changed)? * 1.3, "{}", changed_of_many[0].heard);
        let (small, large) = (least(&changed, "push_context"), least(&changed_of_many, "push_context"));
        ensure!(large < small * 4.0 + 0.01, "a change: {large} s, {small} s in the small mesh");
        Ok(())
    });
}

/// 40 workloads with 1 and with 20 replicas each. What a change means is worked out once; only writing and answers grow.
#[test]
fn replicas_cost_writing_and_nothing_else() {
    run(async {
        let (world, mut swarm, few) = begin(&plain(40, 4, 40), &[]).await?;
        let changed = routes(&world, &mut swarm, "istio-system", "all").await?;
        drop((swarm, world));
        let (world, mut swarm, many) = begin(&plain(40, 4, 800), &[]).await?;
        let changed_of_many = routes(&world, &mut swarm, "istio-system", "all").await?;
        let (small, large) = (least(&changed, "push_context"), least(&changed_of_many, "push_context"));
        ensure!(large < small * 5.0 + 0.002, "a change: {large} s for 800 proxies, {small} s for 40");
        let all = |phases: &[Phase]| phases.iter().map(|phase| phase.grew(PROCESS)).sum::<f64>();
        let (small, large) = (all(&changed), all(&changed_of_many));
        ensure!(large < small * 20.0 * 1.5, "with everything: {large} s for 800 proxies, {small} s for 40");
        let (small, large) = (few.after.held("serialization"), many.after.held("serialization"));
        ensure!(large < small * 4.0, "{large} encoded bytes for 800 proxies, {small} for 40");
        // Clusters, load assignments, listeners and routes of each.
        let state = (many.after.held("delta") + many.after.held("ack")) / 800.0 / 4.0;
        ensure!(state < 2048.0, "{state} bytes for a type of a proxy");
        ensure!(many.after.held("push_queue") == 0.0, "nobody waits, and yet something is held");
        Ok(())
    });
}

/// One stream at a time, and all of them: a wave is as much work, and nobody waits for long.
#[test]
fn a_wave_costs_the_same_whatever_the_throttle() {
    run(async {
        let mut waves = Vec::new();
        for throttle in ["1", "1000"] {
            let (world, mut swarm, _) = begin(&plain(40, 4, 400), &[("PILOT_PUSH_THROTTLE", throttle)]).await?;
            let phases = routes(&world, &mut swarm, "istio-system", "all").await?;
            let spent: f64 = phases.iter().map(|phase| phase.grew(PROCESS)).sum();
            let times = phases.iter().map(|phase| phase.heard("/max_ms")).collect::<Result<Vec<_>>>()?;
            waves.push((spent, times.into_iter().fold(f64::INFINITY, f64::min)));
        }
        let [(narrow, slow), (wide, quick)] = waves[..] else { unreachable!("two were measured") };
        ensure!(narrow < wide * 2.0 + 0.1 && wide < narrow * 2.0 + 0.1, "{narrow} s and {wide} s of work");
        ensure!(
            slow < quick * 4.0 + 1000.0,
            "the last hears after {slow} ms with one slot, after {quick} ms with many"
        );
        Ok(())
    });
}

/// Three of 400 services change, of which nobody here is a replica: each proxy is sent three clusters, not 400.
#[test]
fn what_did_not_change_is_not_sent() {
    run(async {
        let (world, mut swarm, connected) = begin(&Plan { scoped: false, ..plain(400, 4, 4) }, &[]).await?;
        let rules: Vec<String> = (0..3).map(|n| rule(&format!("ns-{n}"), &format!("s-{}", 100 + n), n)).collect();
        let changed = phase(&world, &mut swarm, "all", || world.write("changed.yaml", &rules.join("---\n"))).await?;
        ensure!(changed.heard("/types/CDS/resources")? == 12.0, "{}", changed.heard);
        let (whole, part) = (connected.bytes_each()?, changed.bytes_each()?);
        // In proportion to what changed, with the load assignments that a changed cluster waits for.
        ensure!(whole / part > 400.0 / 3.0, "{part} of {whole} bytes");
        Ok(())
    });
}

/// ServiceEntries with many addresses, policies for each workload and an EnvoyFilter for everybody: a change of something else costs what it
/// did without them.
#[test]
fn a_change_does_not_pay_for_what_it_does_not_touch() {
    run(async {
        let (world, mut swarm, _) = begin(&plain(40, 4, 40), &[]).await?;
        let before = routes(&world, &mut swarm, "istio-system", "all").await?;
        let heavy = [entries(100, 50), policies(100), FILTER.to_owned()].concat();
        phase(&world, &mut swarm, "all", || world.write("heavy.yaml", &heavy)).await?;
        let after = routes(&world, &mut swarm, "istio-system", "all").await?;
        let (light, heavy) = (least(&before, "push_context"), least(&after, "push_context"));
        ensure!(heavy < light * 3.0 + 0.01, "a change: {heavy} s, {light} s before");
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
        let (world, mut swarm, _) = begin(&plain(40, 4, 40), &[]).await?;
        let narrow = FILTER.replace("istio-system", "ns-1");
        let narrow = phase(&world, &mut swarm, "ns-1", || world.write("filter.yaml", &narrow)).await?;
        let broad = FILTER.replace("connect_timeout: 5s", "per_connection_buffer_limit_bytes: 4096");
        let broad = phase(&world, &mut swarm, "all", || world.write("broad.yaml", &broad)).await?;
        ensure!(narrow.heard("/reached")? == 10.0 && broad.heard("/reached")? == 40.0, "{}", narrow.heard);
        ensure!(narrow.heard("/bytes")? * 2.0 < broad.heard("/bytes")?, "{} {}", narrow.heard, broad.heard);
        Ok(())
    });
}

/// 1,000 services, and 250 endpoints of one more. 10,000 pods are in `load`.
#[test]
fn objects_are_small() {
    run(async {
        let world = World::new(&plain(1000, 20, 0), &[])?;
        let held = Figures::of(&world)?;
        ensure!(held.value("pilot_services") > 1000.0, "not all services are there");
        ensure!(held.held("informer_cache") < 20e6, "{} bytes of objects", held.held("informer_cache"));
        ensure!(held.resident() < 300e6, "{} bytes in all", held.resident());
        let before = held.held("informer_cache");
        let endpoints: Vec<String> =
            (0..250).map(|n| format!("{{addresses: [10.201.0.{n}], conditions: {{ready: true}}}}")).collect();
        let slice = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: large, namespace: ns-0, labels: {{kubernetes.io/service-name: s-0}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: 80}}]\nendpoints: [{}]\n",
            endpoints.join(", ")
        );
        world.write("large.yaml", &slice)?;
        world.wait_for("the slice", || Ok(Figures::of(&world)?.held("informer_cache") > before))?;
        let large = Figures::of(&world)?.held("informer_cache") - before;
        ensure!(large < 100e3, "{large} bytes for 250 endpoints");
        Ok(())
    });
}
