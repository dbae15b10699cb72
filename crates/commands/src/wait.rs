//! `meltemi wait`: until all proxies that an object concerns have acknowledged it, at all replicas.

mod progress;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use config::diagnostic::{ObjectId, Severity};
use config::object::parse_documents;
use serde_json::{Value, json};
use server::{ObjectAcks, content_digest};

use super::client;
use super::object_name::object_id;
use super::object_text::ObjectText;
use super::replica_pages::{OfReplica, ReplicaPages, SILENT};
use super::{CommandOutcome, print};
use progress::{Expected, Missing, Progress};
use settings::args::{Listing, WaitArgs};
use settings::go_duration;

/// How often replicas are asked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Proxies that are listed as text.
const SHOWN: usize = 20;
const BAR: usize = 30;

/// An object, and what is known about it after the last round.
struct Waiting {
    id: ObjectId,
    progress: Progress,
    missing: Vec<Missing>,
}

pub fn run(args: &WaitArgs) -> Result<CommandOutcome> {
    let limit = go_duration(&args.timeout)
        .with_context(|| format!("--timeout {:?} is not a duration; write it like 30s or 5m", args.timeout))?;
    let mut objects: Vec<Waiting> = expected(args)?
        .into_iter()
        .map(|(id, expected)| Waiting { id, progress: Progress::new(expected), missing: Vec::new() })
        .collect();
    client::run(follow(args, &mut objects, limit))?;
    match args.output {
        Listing::Json => print(&format!("{:#}\n", document(&objects))),
        Listing::Text => print(&objects.iter().map(text).collect::<String>()),
    }
    let is_done = objects.iter().all(|object| object.missing.is_empty());
    Ok(if is_done { CommandOutcome::Done } else { CommandOutcome::Found })
}

fn expected(args: &WaitArgs) -> Result<Vec<(ObjectId, Expected)>> {
    let Some(file) = &args.filename else {
        let (kind, name) = args.kind.as_deref().zip(args.name.as_deref()).context("which object?")?;
        return Ok(vec![(object_id(kind, name)?, Expected { generation: args.generation, content: None })]);
    };
    let objects = ObjectText::read(file)?;
    let parsed = parse_documents(&file.display().to_string(), &objects.text);
    // What cannot be read may be the object that is meant.
    if let Some(error) = parsed.diagnostics.iter().find(|it| it.object.is_none() && it.severity == Severity::Error) {
        bail!("{}: {}", error.at.as_ref().map_or_else(|| file.display().to_string(), ToString::to_string), error.what);
    }
    if let Some(id) = parsed.rejected.first() {
        bail!("{id} is invalid; `meltemi check` says why");
    }
    let of_istio = parsed.objects.iter().filter(|object| object.kind().is_istio());
    let expected = of_istio
        .map(|object| (object.id(), Expected { generation: None, content: Some(content_digest(object)) }))
        .collect::<Vec<_>>();
    ensure!(!expected.is_empty(), "{}: there are no Istio objects in it", file.display());
    Ok(expected)
}

/// Until every object is acknowledged, or cannot be any more, or the time is over.
async fn follow(args: &WaitArgs, objects: &mut [Waiting], limit: Duration) -> Result<()> {
    let began = Instant::now();
    let mut pages = ReplicaPages::new(&args.target)?;
    let mut bar = Bar::default();
    loop {
        let refused = pages.look(&args.target).await.unwrap_or_default();
        if let Some((replica, why)) = refused.iter().find(|(_, why)| *why != SILENT) {
            bail!("replica {replica} cannot be asked: {why}");
        }
        for object in objects.iter_mut() {
            let answers = ask(&pages, &object.id).await;
            if let (true, [OfReplica { value: Err(why), .. }]) = (bar.last.is_empty(), &answers[..]) {
                bail!("{why}");
            }
            object.missing = object.progress.update(&answers, Instant::now());
        }
        bar.show(objects);
        let settled = |object: &Waiting| object.missing.iter().all(|it| it.why.is_final());
        if objects.iter().all(settled) || began.elapsed() >= limit {
            bar.end();
            return Ok(());
        }
        tokio::time::sleep(POLL_INTERVAL.min(limit.saturating_sub(began.elapsed()))).await;
    }
}

/// Errors as texts: they are reported of the last round only.
async fn ask(pages: &ReplicaPages<'_>, id: &ObjectId) -> Vec<OfReplica<Result<ObjectAcks, String>>> {
    let path = format!("/debug/object_acks?kind={}&namespace={}&name={}", id.kind, id.namespace, id.name);
    let answers = pages.read_each::<ObjectAcks>(&path, "the proxies of an object").await;
    let text = |it: OfReplica<Result<ObjectAcks>>| OfReplica {
        replica: it.replica,
        value: it.value.map_err(|why| format!("{why:#}")),
    };
    answers.into_iter().map(text).collect()
}

/// The progress on stderr: one line that is rewritten on a terminal, else a line whenever it changes.
#[derive(Default)]
struct Bar {
    last: String,
}

impl Bar {
    fn show(&mut self, objects: &[Waiting]) {
        let (mut done, mut all) = (0, 0);
        for object in objects {
            done += object.progress.acknowledged();
            all += object.progress.proxies();
        }
        let waiting = objects.iter().flat_map(|object| &object.missing).find(|it| it.proxy.is_none());
        let waiting = waiting.map(|it| format!("; {}", missing_text(it))).unwrap_or_default();
        let filled = (BAR * done).checked_div(all).unwrap_or(0);
        let text = format!("[{:<BAR$}] {done} of {all} proxies have acknowledged{waiting}", "#".repeat(filled));
        if text == self.last {
            return;
        }
        if std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K{text}");
            // A terminal that is gone is no reason to end.
            let _ = std::io::stderr().flush();
        } else {
            eprintln!("{text}");
        }
        self.last = text;
    }

    fn end(&self) {
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
    }
}

fn text(object: &Waiting) -> String {
    let Waiting { id, progress, missing } = object;
    let generation = progress.generation().map(|it| format!(" generation {it}")).unwrap_or_default();
    let (done, all) = (progress.acknowledged(), progress.proxies());
    let mut text = format!("{id}{generation}: {done} of {all} proxies have acknowledged it\n");
    missing.iter().take(SHOWN).for_each(|it| text.push_str(&format!("  {}\n", missing_text(it))));
    if missing.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", missing.len() - SHOWN));
    }
    text
}

fn missing_text(Missing { proxy, replica, why }: &Missing) -> String {
    let place = if replica.is_empty() { String::new() } else { format!(" at replica {replica}") };
    let who = proxy.as_deref().map(|proxy| format!("{proxy}{place}: "));
    let who = who.unwrap_or_else(|| if replica.is_empty() { String::new() } else { format!("replica {replica}: ") });
    format!("{who}{why}")
}

fn document(objects: &[Waiting]) -> Value {
    let missing = |it: &Missing| json!({"proxy": it.proxy, "replica": it.replica, "why": it.why.name(), "what": it.why.to_string()});
    let object = |Waiting { id, progress, missing: all }: &Waiting| {
        json!({
            "kind": id.kind.name(), "namespace": &*id.namespace, "name": &*id.name, "generation": progress.generation(),
            "proxies": progress.proxies(), "acknowledged": progress.acknowledged(),
            "missing": all.iter().map(missing).collect::<Vec<_>>(),
        })
    };
    let reasons = objects.iter().flat_map(|object| &object.missing).fold(BTreeMap::new(), |mut reasons, it| {
        *reasons.entry(it.why.name()).or_insert(0) += 1;
        reasons
    });
    json!({
        "done": reasons.is_empty(), "reasons": reasons, "objects": objects.iter().map(object).collect::<Vec<_>>(),
    })
}
