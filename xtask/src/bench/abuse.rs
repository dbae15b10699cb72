//! `cargo xtask abuse`: attacks on a server with connected proxies, one after the other or all at once, and what the others notice of them. Attackers from the
//! network are in the load generator, tenants in `tenant`; what is measured is in `effect`. By hand, on the release build; loopback only.

mod effect;
mod exposed;
mod table;
mod tenant;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::objects::{Home, Objects};
use super::plane::ProxyTransport;
use super::size::Size;
use super::swarm::Swarm;
use super::usage::Cpu;
use super::{Tools, show};
use crate::{progress, project};
use effect::{Effect, Probe};
use exposed::{AllocatedMemory, ExposedServer};
use table::{Row, Table};
use tenant::{TenantAttack, Tenants};

/// One endpoint change in each.
const BEAT: Duration = Duration::from_secs(1);
/// What a dropped connection or class may still hold is gone by then, and content that was replaced, which is kept for a minute because proxies may
/// still reject it.
const LET_GO: Duration = Duration::from_secs(90);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these [default: all, see `loadgen attack --list` and the tenants' in `xtask/src/bench/abuse/tenant.rs`]
    attacks: Vec<String>,
    /// All attacks at the same time, which must not cost a proxy its stream, nor a change more than a second
    #[arg(long)]
    all_at_once: bool,
    /// How long each attack lasts; all at once last as long as six
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Connected proxies
    #[arg(long, default_value_t = 500)]
    proxies: usize,
    #[arg(long, default_value_t = 500)]
    services: usize,
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Keep the work folder with its logs
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
}

/// As `loadgen attack --list` prints it; a tenant's has no clients.
#[derive(Debug, Clone, Deserialize, Serialize)]
struct ListedAttack {
    #[serde(rename = "attack")]
    name: String,
    per_second: u32,
    what: String,
}

/// What came of it, as loadgen prints it.
#[derive(Debug, Default, Deserialize)]
struct Strikes {
    strikes: u64,
    ended_by_server: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let tools = Tools::find(false, args.keep)?;
    let dir = project::target().join("abuse");
    std::fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
    let (network, tenants) = selected(&tools.loadgen, &args.attacks)?;
    let mut scene = Scene::set(&tools, args)?;
    let quiet = scene.observed("nothing", Duration::from_secs(args.seconds.min(10)))?;
    let mut rows = vec![Row::baseline(quiet)];
    if args.all_at_once {
        let time = Duration::from_secs(6 * args.seconds);
        rows.push(scene.attacked("all at once", &network, &tenants, time)?);
    } else {
        let time = Duration::from_secs(args.seconds);
        for attack in &network {
            rows.push(scene.attacked(&attack.name, std::slice::from_ref(attack), &[], time)?);
        }
        for attack in &tenants {
            rows.push(scene.attacked(attack.name(), &[], &[*attack], time)?);
        }
    }
    let rates = rates(&network, &tenants);
    let table = Table { mesh: scene.size.clone(), rows, rates };
    show(&dir, "abuse", args.output == Output::Json, &table.text(), &table)?;
    let failed: Vec<&str> = table.rows.iter().filter(|row| !row.holds()).map(|row| &*row.attack).collect();
    ensure!(failed.is_empty(), "others notice too much of: {}", failed.join(", "));
    Ok(())
}

/// Of the network and of tenants, by name; all if none is named.
fn selected(loadgen: &Path, names: &[String]) -> Result<(Vec<ListedAttack>, Vec<TenantAttack>)> {
    let output = Command::new(loadgen).args(["attack", "--list"]).output().context("run loadgen")?;
    ensure!(output.status.success(), "loadgen attack --list: {}", String::from_utf8_lossy(&output.stderr));
    let listed = String::from_utf8_lossy(&output.stdout);
    let mut network: Vec<ListedAttack> = listed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let mut tenants = TenantAttack::ALL.to_vec();
    let is_known = |name: &String| {
        network.iter().any(|attack| attack.name == *name) || tenants.iter().any(|attack| attack.name() == name)
    };
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let all = network.iter().map(|attack| &*attack.name).chain(tenants.iter().map(|attack| attack.name()));
        anyhow::bail!("no attack is named {unknown}; there are {}", all.collect::<Vec<_>>().join(", "));
    }
    if !names.is_empty() {
        network.retain(|attack| names.contains(&attack.name));
        tenants.retain(|attack| names.iter().any(|name| name == attack.name()));
    }
    Ok((network, tenants))
}

fn rates(network: &[ListedAttack], tenants: &[TenantAttack]) -> Vec<ListedAttack> {
    let of_tenant = |attack: &TenantAttack| ListedAttack {
        name: attack.name().to_owned(),
        per_second: 1,
        what: attack.what().to_owned(),
    };
    network.iter().cloned().chain(tenants.iter().map(of_tenant)).collect()
}

/// A server, its proxies, and the objects that change.
struct Scene<'a> {
    tools: &'a Tools,
    size: Size,
    /// In the order in which they end: proxies before the server.
    swarm: Swarm,
    server: ExposedServer,
    objects: Objects,
    tenants: Tenants,
    _work: tempfile::TempDir,
}

impl<'a> Scene<'a> {
    fn set(tools: &'a Tools, args: &Args) -> Result<Scene<'a>> {
        let size = Size {
            proxies: args.proxies,
            services: args.services,
            endpoints: 3,
            namespaces: args.services.div_ceil(20),
            scoped: true,
            virtual_services: 30,
            destination_rules: 30,
            gateways: 0,
            gateway_proxies: 0,
            stalled: 0,
            silent: 0,
            tls: false,
        };
        size.check()?;
        size.raise_file_limit()?;
        let mut work = tempfile::Builder::new().prefix("meltemi-abuse-").tempdir().context("make the work folder")?;
        work.disable_cleanup(tools.keep);
        let path = |name: &str| work.path().join(name);
        progress::step("write the mesh", &mut size.mesh_command(&tools.loadgen, &path("mesh")))?;
        let objects = Objects::carry(&path("mesh"), Home::Folder { live: path("live"), aside: path("aside") })?;
        let server = ExposedServer::start(&tools.meltemi, &path("live"), work.path())?;
        let transport = ProxyTransport::Plain(server.plane.xds);
        let mut swarm = Swarm::start(&tools.loadgen, &transport, &path("mesh").join("nodes.jsonl"), &size)?;
        swarm.say("mark connect all")?;
        swarm.say("connect")?;
        let seen = swarm.settle(Duration::from_secs(30))?;
        ensure!(seen["open"] == size.proxies, "only {} of {} proxies are connected", seen["open"], size.proxies);
        let tenants = Tenants::new(path("live").join("attacker"), path("aside"))?;
        Ok(Scene { tools, size, swarm, server, objects, tenants, _work: work })
    }

    fn attacked(
        &mut self,
        name: &str,
        network: &[ListedAttack],
        tenants: &[TenantAttack],
        time: Duration,
    ) -> Result<Row> {
        let before = self.server.memory()?;
        let attackers = if network.is_empty() { None } else { Some(self.attackers(network, time)?) };
        for attack in tenants {
            self.tenants.begin(*attack)?;
        }
        let cpu = attackers.as_ref().map(|child| Cpu::of(child.id())).transpose()?;
        let effect = self.observed(name, time);
        self.tenants.end()?;
        // Its process is there until it is waited for.
        let spent = cpu
            .zip(attackers.as_ref())
            .map(|(before, child)| Ok::<_, anyhow::Error>(Cpu::of(child.id())?.since(&before)));
        let cores = spent.transpose()?.map(|seconds| seconds / time.as_secs_f64());
        let strikes = attackers.map(Strikes::of).transpose()?.unwrap_or_default();
        let effect = effect?;
        let after = self.let_go(before)?;
        let row = Row {
            attack: name.to_owned(),
            strikes: strikes.strikes,
            ended_by_server: strikes.ended_by_server,
            attackers_cores: cores,
            effect,
            before,
            after,
        };
        eprintln!("  {}", row.line());
        Ok(row)
    }

    fn attackers(&self, network: &[ListedAttack], time: Duration) -> Result<Child> {
        let ExposedServer { plane, http, webhook } = &self.server;
        let mut command = Command::new("nice");
        command.args(["-n", "10"]).arg(&self.tools.loadgen).arg("attack").arg(format!("--seconds={}", time.as_secs()));
        command.arg(format!("--xds={}", plane.xds)).arg(format!("--monitoring={}", plane.monitoring));
        command.arg(format!("--secure={}", plane.secure.context("it has a secure port")?));
        command.arg(format!("--http={http}")).arg(format!("--webhook={webhook}"));
        command.args(network.iter().map(|attack| &attack.name));
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("start the attackers")
    }

    /// Changes an endpoint at each beat, and watches what proxies and probes notice.
    fn observed(&mut self, name: &str, time: Duration) -> Result<Effect> {
        let probe = Probe::start(self.server.http);
        let begun = Instant::now();
        let mut effect = Effect::default();
        let mut beat = 0;
        while begun.elapsed() < time {
            ensure!(!self.tools.stopped.load(Ordering::Relaxed), "stopped");
            beat += 1;
            effect.change(&mut self.swarm, &mut self.objects, name)?;
            self.tenants.step(beat)?;
            effect.memory(self.server.memory()?.mb);
            thread::sleep((BEAT * beat).saturating_sub(begun.elapsed()));
            effect.end_of_beat(&mut self.swarm)?;
            self.server.plane.process.check().with_context(|| format!("during {name}"))?;
        }
        effect.probes(&probe.stop());
        Ok(effect)
    }

    /// What is allocated once everything is let go that an attack held.
    fn let_go(&self, before: AllocatedMemory) -> Result<AllocatedMemory> {
        let begun = Instant::now();
        loop {
            let now = self.server.memory()?;
            if table::is_let_go(before, now) || begun.elapsed() > LET_GO {
                return Ok(now);
            }
            thread::sleep(BEAT);
        }
    }
}

impl Strikes {
    /// Of all attacks of the process, which ends by itself.
    fn of(mut child: Child) -> Result<Strikes> {
        let lines = BufReader::new(child.stdout.take().context("piped above")?).lines();
        let mut sum = Strikes::default();
        for line in lines {
            let one: Strikes = serde_json::from_str(&line?).context("a line of loadgen")?;
            sum.strikes += one.strikes;
            sum.ended_by_server += one.ended_by_server;
        }
        ensure!(child.wait()?.success(), "the attackers failed; their complaint is above");
        Ok(sum)
    }
}
