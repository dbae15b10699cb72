//! What the console costs: its figures in a browser and its pages' share of a processor (`console/tests/measure.js`), and a push's p99 with
//! event streams connected beside none, in alternating rounds on one server.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::Tools;
use super::figure::median;
use super::objects::{Home, Objects};
use super::plane::{Plane, ProxyTransport};
use super::record::Seen;
use super::scenario::Scenario;
use super::size::Size;
use super::swarm::Swarm;
use crate::{console, progress};

/// Whose times make the median of one half of a round.
const PUSHES: usize = 10;
/// The tables of ten thousand proxies are two megabytes for each.
const COMPLETE_WITHIN: Duration = Duration::from_secs(30);
const END_OF_TABLES: &[u8] = b"event: complete";

/// Prints the figures that the script takes.
pub(super) fn pages(tools: &Tools, size: &Size, seconds: usize) -> Result<()> {
    size.raise_file_limit()?;
    let work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
    let mesh = work.path().join("mesh");
    progress::step("write the mesh", &mut size.mesh_command(&tools.loadgen, &mesh))?;
    console::measure(&tools.meltemi, &tools.loadgen, &mesh, seconds)
}

/// p99 in milliseconds of the pushes of each half of a round: medians.
#[derive(Debug, Serialize)]
pub(super) struct ClientCost {
    mesh: Size,
    clients: usize,
    rounds: Vec<Round>,
    without_ms: f64,
    with_ms: f64,
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Round {
    without_ms: f64,
    with_ms: f64,
    /// Megabytes of events that all clients were sent.
    events_mb: f64,
}

pub(super) fn clients(tools: &Tools, size: &Size, rounds: usize, clients: usize) -> Result<ClientCost> {
    size.raise_file_limit()?;
    let work = tempfile::Builder::new().prefix("meltemi-bench-").tempdir().context("make the work folder")?;
    let folder = |name: &str| -> Result<_> {
        let path = work.path().join(name);
        std::fs::create_dir_all(&path)?;
        Ok(path)
    };
    let mesh = work.path().join("mesh");
    progress::step("write the mesh", &mut size.mesh_command(&tools.loadgen, &mesh))?;
    let (live, aside, logs) = (folder("live")?, folder("aside")?, folder("logs")?);
    let mut objects = Objects::carry(&mesh, Home::Folder { live: live.clone(), aside })?;
    let plane = Plane::meltemi(&tools.meltemi, &live, &logs, &[])?;
    let mut swarm = connected(tools, size, &plane, &mesh.join("nodes.jsonl"))?;
    let mut taken = Vec::new();
    for round in 1..=rounds {
        ensure!(!tools.stopped.load(Ordering::Relaxed), "stopped");
        // Whichever is first finds the machine as the round before has left it.
        let (mut without, mut with, mut events_mb) = (None, None, 0.0);
        for has_clients in if round % 2 == 1 { [false, true] } else { [true, false] } {
            let streams = has_clients.then(|| EventStreams::connect(plane.monitoring, clients)).transpose()?;
            let p99 = pushes(&mut swarm, &mut objects, size)?;
            match streams {
                Some(streams) => (with, events_mb) = (Some(p99), streams.close() as f64 / 1e6),
                None => without = Some(p99),
            }
        }
        let (without_ms, with_ms) = without.zip(with).context("both halves were measured")?;
        eprintln!(
            "  round {round}/{rounds}: p99 {without_ms:.1} ms, with {clients} clients {with_ms:.1} ms ({events_mb:.1} MB of events)"
        );
        taken.push(Round { without_ms, with_ms, events_mb });
    }
    Ok(ClientCost::of(size.clone(), clients, taken))
}

fn connected(tools: &Tools, size: &Size, plane: &Plane, nodes: &Path) -> Result<Swarm> {
    let mut swarm = Swarm::start(&tools.loadgen, &ProxyTransport::Plain(plane.xds), nodes, size)?;
    swarm.say("mark connect all")?;
    swarm.say("connect")?;
    let seen = Seen::read(swarm.settle(Scenario::Connect.settle_limit())?)?;
    ensure!(seen.missed == 0, "{} proxies were sent nothing", seen.missed);
    Ok(swarm)
}

/// The median p99 of some pushes to all proxies.
fn pushes(swarm: &mut Swarm, objects: &mut Objects, size: &Size) -> Result<f64> {
    let scenario = Scenario::VirtualService;
    let mut times = Vec::new();
    for _ in 0..PUSHES {
        swarm.say(&format!("mark {} {}", scenario.name(), scenario.audience(size)))?;
        scenario.change(objects)?;
        let seen = Seen::read(swarm.settle(scenario.settle_limit())?)?;
        ensure!(seen.missed == 0, "a push did not reach {} proxies", seen.missed);
        times.extend(seen.p99_ms);
    }
    median(times.into_iter()).context("no push was seen")
}

impl ClientCost {
    fn of(mesh: Size, clients: usize, rounds: Vec<Round>) -> ClientCost {
        let middle = |value: fn(&Round) -> f64| median(rounds.iter().map(value)).unwrap_or(0.0);
        let (without_ms, with_ms) = (middle(|round| round.without_ms), middle(|round| round.with_ms));
        ClientCost { mesh, clients, without_ms, with_ms, ratio: with_ms / without_ms.max(f64::MIN_POSITIVE), rounds }
    }

    pub(super) fn text(&self) -> String {
        let ClientCost { mesh, clients, rounds, without_ms, with_ms, ratio } = self;
        let mut text = format!(
            "\n{mesh}; p99 of a push to all proxies, medians of {PUSHES}\n\n| round | no client, ms | {clients} clients, ms | events, MB |\n|---|---|---|---|\n"
        );
        for (at, Round { without_ms, with_ms, events_mb }) in rounds.iter().enumerate() {
            let _ = writeln!(text, "| {} | {without_ms:.1} | {with_ms:.1} | {events_mb:.1} |", at + 1);
        }
        let verdict = if *ratio <= 1.1 { "within 10 %" } else { "**not** within 10 %" };
        let _ = writeln!(text, "\nmedians: {without_ms:.1} and {with_ms:.1} ms, ratio {ratio:.3}: {verdict}");
        text
    }
}

/// Event streams of the console with all its topics, read and thrown away.
struct EventStreams {
    streams: Vec<TcpStream>,
    readers: Vec<JoinHandle<()>>,
    /// That have the whole tables.
    complete: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
}

impl EventStreams {
    /// Returns when each of them has the tables: from then on they are sent differences.
    fn connect(monitoring: SocketAddr, count: usize) -> Result<EventStreams> {
        let mut all =
            EventStreams { streams: Vec::new(), readers: Vec::new(), complete: Arc::default(), bytes: Arc::default() };
        for _ in 0..count {
            let mut stream = TcpStream::connect(monitoring).context("connect to the console")?;
            let path = "/console/api/live?topics=overview,proxies,pushes";
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")?;
            let (reader, complete, bytes) = (stream.try_clone()?, all.complete.clone(), all.bytes.clone());
            all.readers.push(thread::spawn(move || read(reader, &complete, &bytes)));
            all.streams.push(stream);
        }
        let begun = Instant::now();
        while all.complete.load(Ordering::Relaxed) < count as u64 {
            let complete = all.complete.load(Ordering::Relaxed);
            ensure!(begun.elapsed() < COMPLETE_WITHIN, "{complete} of {count} clients got the tables of the console");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(all)
    }

    /// Returns the bytes that all of them were sent.
    fn close(mut self) -> u64 {
        self.end();
        self.bytes.load(Ordering::Relaxed)
    }

    fn end(&mut self) {
        for stream in self.streams.drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
        for reader in self.readers.drain(..) {
            reader.join().ok();
        }
    }
}

impl Drop for EventStreams {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(mut stream: TcpStream, complete: &AtomicU64, bytes: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    // Until the tables are complete: what was read last, since the mark may be cut in two.
    let mut tail: Option<Vec<u8>> = Some(Vec::new());
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        bytes.fetch_add(read as u64, Ordering::Relaxed);
        let Some(seen) = &mut tail else { continue };
        seen.extend_from_slice(&buffer[..read]);
        if seen.windows(END_OF_TABLES.len()).any(|window| window == END_OF_TABLES) {
            complete.fetch_add(1, Ordering::Relaxed);
            tail = None;
        } else {
            seen.drain(..seen.len().saturating_sub(END_OF_TABLES.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        size: Size,
    }

    #[test]
    fn the_ratio_is_of_medians() {
        let round = |without_ms, with_ms| Round { without_ms, with_ms, events_mb: 1.0 };
        let rounds = vec![round(10.0, 10.5), round(50.0, 11.0), round(9.0, 90.0)];
        let cost = ClientCost::of(Line::parse_from(["x"]).size, 10, rounds);
        assert_eq!((cost.without_ms, cost.with_ms), (10.0, 11.0));
        assert!(cost.text().contains("medians: 10.0 and 11.0 ms, ratio 1.100: within 10 %"), "{}", cost.text());
    }

    #[test]
    fn a_client_is_connected_when_it_has_the_tables() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nevent: proxies\nevent: comp").unwrap();
            thread::sleep(Duration::from_millis(100));
            stream.write_all(b"lete\n").unwrap();
            stream
        });
        let streams = EventStreams::connect(address, 1).unwrap();
        assert!(streams.close() > 30);
        server.join().unwrap();
    }
}
