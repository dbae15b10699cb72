//! Whether service accounts may read the Secrets of their namespace, as the roles of the cluster say: a SubjectAccessReview each, remembered
//! for a short while and asked again after it. Questions are answered from memory; until the API server has answered, the answer is no.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::Client;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tracing::warn;

use crate::object;
use crate::review::Account;

pub struct Access {
    known: Arc<Mutex<Known>>,
    questions: mpsc::Sender<Account>,
}

type Known = HashMap<Account, Entry>;

#[derive(Debug, Clone, Copy)]
struct Entry {
    allowed: bool,
    /// Before this it is not asked again, and after `ends` it is no longer believed.
    fresh: Instant,
    ends: Instant,
    /// When somebody last wanted to know.
    wanted: Instant,
}

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// An API server that is away takes no secret from anybody for so long, in times that an answer is fresh.
const BELIEVED: u32 = 5;
/// Who was not wanted for so long is not asked for again, in the same.
const KEPT: u32 = 60;
/// After a failure.
const AGAIN: Duration = Duration::from_secs(5);
/// Accounts that are remembered, and questions that wait.
const MOST: usize = 20_000;
const WAITING: usize = 1_000;

impl Access {
    /// An answer is believed as long as `fresh` before it is asked for again; `changed` is called when it is another than before.
    pub fn new(client: Client, fresh: Duration, changed: impl Fn() + Send + 'static) -> Access {
        let (questions, asked) = mpsc::channel(WAITING);
        let known = Arc::<Mutex<Known>>::default();
        tokio::spawn(answer(client, fresh, known.clone(), asked, changed));
        Access { known, questions }
    }

    /// Asks in the background where the answer is not known, or old.
    pub fn may_read(&self, namespace: &str, service_account: &str) -> bool {
        let account = Account { namespace: namespace.to_owned(), name: service_account.to_owned() };
        let now = Instant::now();
        let mut known = locked(&self.known);
        let entry = known.get_mut(&account).map(|entry| {
            entry.wanted = now;
            *entry
        });
        if entry.is_none_or(|entry| entry.fresh <= now) && self.questions.try_send(account.clone()).is_ok() {
            // One question at a time for each account.
            let ends = entry.map_or(now, |entry| entry.ends);
            let allowed = entry.is_some_and(|entry| entry.allowed);
            remember(&mut known, account, Entry { allowed, fresh: now + AGAIN, ends, wanted: now }, now);
        }
        entry.is_some_and(|entry| entry.allowed && now < entry.ends)
    }
}

async fn answer(
    client: Client,
    fresh: Duration,
    known: Arc<Mutex<Known>>,
    mut asked: mpsc::Receiver<Account>,
    changed: impl Fn(),
) {
    let mut again = interval(fresh);
    loop {
        tokio::select! {
            account = asked.recv() => {
                let Some(account) = account else { return };
                if settle(&client, fresh, &known, account).await {
                    changed();
                }
            }
            _ = again.tick() => {
                for account in due(&known, fresh) {
                    if settle(&client, fresh, &known, account).await {
                        changed();
                    }
                }
            }
        }
    }
}

/// Those who may, and of whom it may have changed: nobody is given a secret by a role that went long ago.
fn due(known: &Mutex<Known>, fresh: Duration) -> Vec<Account> {
    let now = Instant::now();
    let mut known = locked(known);
    known.retain(|_, entry| entry.wanted + fresh * KEPT > now);
    known.iter().filter(|(_, entry)| entry.allowed).map(|(account, _)| account.clone()).collect()
}

/// Answers whether the answer is another than before.
async fn settle(client: &Client, fresh: Duration, known: &Mutex<Known>, account: Account) -> bool {
    let allowed = match object::create(client, PATH, &question(&account)).await {
        Ok(review) => is_allowed(&review),
        Err(failure) => {
            warn!(%failure, "the API server could not say who may read Secrets; it is asked again");
            return false;
        }
    };
    let now = Instant::now();
    let mut known = locked(known);
    let wanted = known.get(&account).map_or(now, |entry| entry.wanted);
    let entry = Entry { allowed, fresh: now + fresh, ends: now + fresh * BELIEVED, wanted };
    let before = remember(&mut known, account, entry, now);
    before.is_none_or(|before| before.allowed != allowed || before.ends <= now)
}

fn remember(known: &mut Known, account: Account, entry: Entry, now: Instant) -> Option<Entry> {
    if known.len() >= MOST && !known.contains_key(&account) {
        known.retain(|_, entry| entry.fresh > now);
        if known.len() >= MOST {
            return None;
        }
    }
    known.insert(account, entry)
}

/// What istiod asks: bindings of the account itself count, those of its groups do not.
fn question(Account { namespace, name }: &Account) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{name}"),
            "resourceAttributes": { "namespace": namespace, "verb": "list", "resource": "secrets" },
        },
    })
}

fn is_allowed(review: &Value) -> bool {
    review["status"]["allowed"] == true && review["status"]["denied"] != true
}

// Entries are replaced whole.
fn locked(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_yes_is_one() {
        assert!(is_allowed(&json!({ "status": { "allowed": true } })));
        for status in [json!({}), json!({ "allowed": "true" }), json!({ "allowed": true, "denied": true })] {
            assert!(!is_allowed(&json!({ "status": status })), "{status}");
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut known, now) = (Known::new(), Instant::now());
        let later = now + Duration::from_secs(60);
        for number in 0..MOST + 10 {
            let account = Account { namespace: "n".into(), name: number.to_string() };
            remember(&mut known, account, Entry { allowed: true, fresh: later, ends: later, wanted: now }, now);
        }
        assert_eq!(known.len(), MOST);
    }
}
