//! The task that computes the tables of the live topics, about once a second, while somebody listens. However large the mesh is, it takes less than
//! a hundredth of one processor: after each sample it waits for many times as long as the sample took.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use tracing::error;

use super::live::Topic;
use super::overview::Overview;
use super::proxy_rows;
use super::work::Work;
use crate::pushes;
use crate::state::AdminState;

const INTERVAL: Duration = Duration::from_secs(1);
/// Each of the three topics may take one part in 400 of a processor.
const REST: u32 = 400;
/// After the last listener has left: somebody who reloads a page finds the tables as they were.
const LINGER: Duration = Duration::from_secs(30);

pub(super) fn ensure_running(state: &Arc<AdminState>) {
    let mut samples = state.console.samples.lock().unwrap_or_else(PoisonError::into_inner);
    if !std::mem::replace(&mut *samples, true) {
        tokio::spawn(run(state.clone()));
    }
    state.console.woken.notify_one();
}

async fn run(state: Arc<AdminState>) {
    let mut due = [Instant::now(); Topic::ALL.len()];
    let mut overview = Overview::default();
    let mut last_wanted = Instant::now();
    loop {
        for topic in Topic::ALL {
            if !state.console.wants(topic) {
                continue;
            }
            last_wanted = Instant::now();
            if Instant::now() < due[topic as usize] {
                continue;
            }
            let sampled = state.clone();
            let took = tokio::task::spawn_blocking(move || {
                let work = Work::begin();
                sample(&sampled, topic, &mut overview);
                (overview, work.spent())
            });
            let Ok((returned, took)) = took.await else {
                error!("the console cannot be served: a sample failed");
                overview = Overview::default();
                continue;
            };
            overview = returned;
            due[topic as usize] = Instant::now() + INTERVAL.max(took * REST) - Duration::from_millis(50);
        }
        if last_wanted.elapsed() > LINGER && stop(&state) {
            return;
        }
        // A new listener does not wait.
        let _ = timeout(INTERVAL, state.console.woken.notified()).await;
        sleep(Duration::from_millis(20)).await;
    }
}

/// `false`: somebody came meanwhile.
fn stop(state: &AdminState) -> bool {
    let mut samples = state.console.samples.lock().unwrap_or_else(PoisonError::into_inner);
    if Topic::ALL.into_iter().any(|topic| state.console.wants(topic)) {
        return false;
    }
    *samples = false;
    true
}

fn sample(state: &AdminState, topic: Topic, overview: &mut Overview) {
    let round = state.console.round() + 1;
    let changed = {
        let mut log = state.console.log(topic);
        log.begin(round);
        match topic {
            Topic::Proxies => proxy_rows::sample(&state.server.connections, &mut log),
            Topic::Pushes => {
                let journal = state.server.provider.journal();
                let pushes = journal.map(|journal| pushes::pushes(&journal, 0)).unwrap_or_default();
                for push in pushes {
                    log.put_text(&push.id.to_string(), serde_json::to_string(&push).unwrap_or_default());
                }
            }
            Topic::Overview => overview.sample(state, &mut log),
        }
        log.end()
    };
    if changed {
        state.console.publish(round);
    }
}
