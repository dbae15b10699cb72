//! Event streams: each listener follows the tables of its topics from a cursor on, and after a reconnect goes on from there. The tables are
//! computed once for all listeners, in `sampler`, and only while somebody listens.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

use super::change_log::{ChangeLog, Difference};
use super::sampler;
use crate::access::Access;
use crate::page::Page;
use crate::state::AdminState;

/// Streams at a time. Each holds what it has not written yet, and nothing else.
const MAX_LISTENERS: usize = 32;
/// Of one event. A browser parses it in one task, which should not be noticed.
const ROWS: usize = 500;
/// Longest time without a byte: a connection of the port that is idle for 30 s is closed.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// Of one stream: the listener comes again with its cursor, and is authenticated again.
const LIFETIME: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Topic {
    /// Figures of the whole server.
    Overview,
    Pushes,
    Proxies,
}

impl Topic {
    pub(super) const ALL: [Topic; 3] = [Topic::Overview, Topic::Pushes, Topic::Proxies];

    fn name(self) -> &'static str {
        match self {
            Topic::Overview => "overview",
            Topic::Pushes => "pushes",
            Topic::Proxies => "proxies",
        }
    }
}

/// What all listeners share.
pub(crate) struct Hub {
    /// Cursors of another process mean nothing here.
    epoch: String,
    logs: [Mutex<ChangeLog>; Topic::ALL.len()],
    /// Listeners of each topic.
    wanted: [AtomicUsize; Topic::ALL.len()],
    /// The last round that changed something.
    round: watch::Sender<u64>,
    listeners: Arc<Semaphore>,
    /// Whether the sampler runs.
    pub(super) samples: Mutex<bool>,
    pub(super) woken: Notify,
}

impl Default for Hub {
    fn default() -> Hub {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Hub {
            epoch: format!("{:x}", since_epoch.as_micros()),
            logs: Default::default(),
            wanted: Default::default(),
            round: watch::channel(0).0,
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
            samples: Mutex::new(false),
            woken: Notify::new(),
        }
    }
}

impl Hub {
    pub(crate) fn epoch(&self) -> &str {
        &self.epoch
    }

    pub(super) fn wants(&self, topic: Topic) -> bool {
        self.wanted[topic as usize].load(Ordering::Relaxed) > 0
    }

    pub(super) fn log(&self, topic: Topic) -> MutexGuard<'_, ChangeLog> {
        self.logs[topic as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn round(&self) -> u64 {
        *self.round.borrow()
    }

    /// A round that changed something is complete.
    pub(super) fn publish(&self, round: u64) {
        self.round.send_replace(round);
    }

    /// The cursor of a listener that comes again. `None`: it has nothing that is of use here.
    fn cursor(&self, headers: &HeaderMap) -> Option<u64> {
        let text = headers.get("last-event-id")?.to_str().ok()?;
        let (epoch, round) = text.split_once('.')?;
        round.parse().ok().filter(|round| epoch == self.epoch && *round <= self.round())
    }
}

/// One stream; its place is free when it is dropped.
struct Listener {
    state: Arc<AdminState>,
    access: Access,
    topics: Vec<Topic>,
    seen: Option<u64>,
    rounds: watch::Receiver<u64>,
    /// Events that are not written yet.
    queue: VecDeque<Bytes>,
    opened: Instant,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Listener {
    fn drop(&mut self) {
        for topic in &self.topics {
            self.state.console.wanted[*topic as usize].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

pub(super) fn response(
    state: &Arc<AdminState>,
    headers: &HeaderMap,
    parameters: &HashMap<String, String>,
    access: Access,
) -> Result<Response, Page> {
    let topics = topics(parameters.get("topics").map(String::as_str).unwrap_or_default())?;
    if topics.iter().any(|topic| *topic != Topic::Proxies) {
        super::for_control_plane(&access)?;
    }
    let hub = &state.console;
    let Ok(permit) = hub.listeners.clone().try_acquire_owned() else {
        let why = format!("{MAX_LISTENERS} consoles are open at this server; close one, or ask another replica\n");
        return Err(Page::text(StatusCode::SERVICE_UNAVAILABLE, &why));
    };
    for topic in &topics {
        hub.wanted[*topic as usize].fetch_add(1, Ordering::Relaxed);
    }
    let listener = Listener {
        state: state.clone(),
        access,
        topics,
        seen: hub.cursor(headers),
        rounds: hub.round.subscribe(),
        // The client sees at once that it is connected.
        queue: [Bytes::from_static(b": connected\n\n")].into(),
        opened: Instant::now(),
        _permit: permit,
    };
    sampler::ensure_running(state);
    let events = unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok::<Bytes, Infallible>(event), listener))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(events)).into_response())
}

fn topics(text: &str) -> Result<Vec<Topic>, Page> {
    let named = |name: &str| Topic::ALL.into_iter().find(|topic| topic.name() == name);
    let topics: Option<Vec<Topic>> = text.split(',').map(named).collect();
    let mut topics = topics.ok_or_else(|| {
        let names = Topic::ALL.map(Topic::name).join(", ");
        Page::text(StatusCode::BAD_REQUEST, &format!("topics must be some of {names}, with commas between them\n"))
    })?;
    topics.dedup();
    Ok(topics)
}

impl Listener {
    /// `None`: the stream ends, and the client comes again.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.opened.elapsed() > LIFETIME {
                return None;
            }
            let round = *self.rounds.borrow_and_update();
            if round > 0 && self.seen.is_none_or(|seen| seen < round) {
                self.collect(round).await;
                continue;
            }
            match timeout(HEARTBEAT, self.rounds.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
            }
        }
    }

    /// Queues what happened up to this round. On a blocking thread, since a listener that begins gets whole tables.
    async fn collect(&mut self, round: u64) {
        let (state, access, topics, seen) = (self.state.clone(), self.access.clone(), self.topics.clone(), self.seen);
        let collected = tokio::task::spawn_blocking(move || {
            let hub = &state.console;
            let differences = topics.iter().map(|topic| (*topic, hub.log(*topic).since(seen, &access)));
            events(differences, &format!("{}.{round}", hub.epoch))
        });
        if let Ok(events) = collected.await {
            self.queue.extend(events);
        }
        self.seen = Some(round);
    }
}

/// Only the last event has the cursor: a listener that is interrupted before gets all of them again.
fn events(differences: impl Iterator<Item = (Topic, Difference)>, cursor: &str) -> Vec<Bytes> {
    let mut events = Vec::new();
    for (topic, difference) in differences.filter(|(_, difference)| !difference.is_empty()) {
        let mut parts = difference.rows.chunks(ROWS);
        let removed = serde_json::to_string(&difference.removed).unwrap_or_else(|_| "[]".to_owned());
        let first = parts.next().unwrap_or_default();
        events.push(event(topic, difference.starts_again, first, &removed));
        events.extend(parts.map(|rows| event(topic, false, rows, "[]")));
    }
    events.push(format!("id: {cursor}\nevent: complete\ndata: {{}}\n\n"));
    events.into_iter().map(Bytes::from).collect()
}

fn event(topic: Topic, starts_again: bool, rows: &[Arc<str>], removed: &str) -> String {
    let rows = rows.join(",");
    format!("event: {}\ndata: {{\"reset\":{starts_again},\"removed\":{removed},\"rows\":[{rows}]}}\n\n", topic.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_event_has_the_cursor() {
        let rows: Vec<Arc<str>> = (0..ROWS + 1).map(|number| number.to_string().into()).collect();
        let difference = Difference { starts_again: true, rows, removed: Vec::new() };
        let events = events([(Topic::Proxies, difference)].into_iter(), "e.7");
        let texts: Vec<&str> = events.iter().map(|event| std::str::from_utf8(event).unwrap()).collect();
        assert_eq!(texts.len(), 3);
        assert!(
            texts[0].starts_with("event: proxies\ndata: {\"reset\":true,\"removed\":[],\"rows\":[0,1,"),
            "{}",
            texts[0]
        );
        assert_eq!(texts[1], format!("event: proxies\ndata: {{\"reset\":false,\"removed\":[],\"rows\":[{ROWS}]}}\n\n"));
        assert_eq!(texts[2], "id: e.7\nevent: complete\ndata: {}\n\n");
    }

    #[test]
    fn a_cursor_of_another_process_is_not_used() {
        let hub = Hub::default();
        hub.publish(9);
        let of = |text: String| {
            hub.cursor(&HeaderMap::from_iter([("last-event-id".parse().unwrap(), text.parse().unwrap())]))
        };
        assert_eq!(of(format!("{}.4", hub.epoch)), Some(4));
        assert_eq!((of("other.4".to_owned()), of(format!("{}.10", hub.epoch)), of("x".to_owned())), (None, None, None));
    }

    #[test]
    fn an_unknown_topic_is_rejected() {
        assert_eq!(topics("proxies,overview").unwrap(), [Topic::Proxies, Topic::Overview]);
        assert!(topics("proxies,nothing").unwrap_err().body.contains("overview, pushes, proxies"));
    }
}
