//! Whether service accounts may read the Secrets of their namespace, as the roles of the cluster say: a SubjectAccessReview each, remembered
//! for a short while and asked again after it. Questions are answered from memory.

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
    /// `None`: the API server has not answered yet.
    allowed: Option<bool>,
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
    pub fn new(client: &Client, fresh: Duration, changed: impl Fn() + Send + 'static) -> Access {
        let (questions, asked) = mpsc::channel(WAITING);
        let known = Arc::<Mutex<Known>>::default();
        tokio::spawn(answer(client.with_own_rate_limit(), fresh, known.clone(), asked, changed));
        Access { known, questions }
    }

    /// `None`: it is not known. The API server is asked in the background, also where the answer is old, and again until it answers.
    pub fn may_read(&self, namespace: &str, service_account: &str) -> Option<bool> {
        let account = Account { namespace: namespace.to_owned(), name: service_account.to_owned() };
        let now = Instant::now();
        let mut known = locked(&self.known);
        let entry = known.get_mut(&account).map(|entry| {
            entry.wanted = now;
            *entry
        });
        if entry.is_none_or(|entry| entry.fresh <= now) && self.questions.try_send(account.clone()).is_ok() {
            // One question at a time for each account.
            let before = entry.unwrap_or(Entry { allowed: None, fresh: now, ends: now, wanted: now });
            remember(&mut known, account, Entry { fresh: now + AGAIN, ..before }, now);
        }
        entry?.believed(now)
    }
}

impl Entry {
    fn believed(self, now: Instant) -> Option<bool> {
        self.allowed.filter(|_| now < self.ends)
    }
}

async fn answer(
    client: Client,
    fresh: Duration,
    known: Arc<Mutex<Known>>,
    mut asked: mpsc::Receiver<Account>,
    changed: impl Fn(),
) {
    let (mut again, mut told) = (interval(fresh.min(AGAIN)), String::new());
    loop {
        let accounts = tokio::select! {
            account = asked.recv() => match account {
                Some(account) => vec![account],
                None => return,
            },
            _ = again.tick() => due(&known, fresh),
        };
        for account in accounts {
            match object::create(&client, PATH, &question(&account)).await {
                Ok(review) => {
                    told.clear();
                    if settle(&known, fresh, account, is_allowed(&review)) {
                        changed();
                    }
                }
                Err(failure) => {
                    let why = failure.to_string();
                    if why != told {
                        let Account { namespace, name } = account;
                        warn!(%failure, namespace, service_account = name, "the API server could not say who may read Secrets; it is asked again");
                        told = why;
                    }
                }
            }
        }
    }
}

/// Those who may, and of whom it may have changed: nobody is given a secret by a role that went long ago. And those of whom nothing is known.
fn due(known: &Mutex<Known>, fresh: Duration) -> Vec<Account> {
    let now = Instant::now();
    let mut known = locked(known);
    known.retain(|_, entry| entry.wanted + fresh * KEPT > now);
    let open = known.iter_mut().filter(|(_, entry)| entry.allowed != Some(false) && entry.fresh <= now);
    let open = open.map(|(account, entry)| {
        entry.fresh = now + AGAIN;
        account.clone()
    });
    open.collect()
}

/// Answers whether the answer is another than before.
fn settle(known: &Mutex<Known>, fresh: Duration, account: Account, allowed: bool) -> bool {
    let now = Instant::now();
    let mut known = locked(known);
    let wanted = known.get(&account).map_or(now, |entry| entry.wanted);
    let entry = Entry { allowed: Some(allowed), fresh: now + fresh, ends: now + fresh * BELIEVED, wanted };
    let before = remember(&mut known, account, entry, now);
    before.and_then(|before| before.believed(now)) != Some(allowed)
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

    /// A gateway whose first question failed waited until somebody else asked.
    #[test]
    fn who_got_no_answer_is_asked_for_again() {
        let (known, second) = (Mutex::<Known>::default(), Duration::from_secs(1));
        let now = Instant::now();
        for (name, allowed, fresh) in
            [("open", None, now), ("asked", None, now + AGAIN), ("may", Some(true), now), ("may not", Some(false), now)]
        {
            let account = Account { namespace: "n".into(), name: name.into() };
            locked(&known).insert(account, Entry { allowed, fresh, ends: now, wanted: now });
        }
        let mut names: Vec<String> = due(&known, second).into_iter().map(|account| account.name).collect();
        names.sort();
        assert_eq!(names, ["may", "open"]);
        assert!(due(&known, second).is_empty(), "one question at a time");
    }

    #[test]
    fn an_answer_is_news_once_and_is_believed_for_a_while() {
        let (known, second) = (Mutex::<Known>::default(), Duration::from_secs(1));
        let account = || Account { namespace: "n".into(), name: "a".into() };
        assert!(settle(&known, second, account(), false));
        assert!(!settle(&known, second, account(), false));
        assert!(settle(&known, second, account(), true));
        let entry = locked(&known)[&account()];
        assert_eq!(entry.believed(entry.ends - second), Some(true));
        assert_eq!(entry.believed(entry.ends), None, "nobody said no");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut known, now) = (Known::new(), Instant::now());
        let later = now + Duration::from_secs(60);
        for number in 0..MOST + 10 {
            let account = Account { namespace: "n".into(), name: number.to_string() };
            remember(&mut known, account, Entry { allowed: Some(true), fresh: later, ends: later, wanted: now }, now);
        }
        assert_eq!(known.len(), MOST);
    }
}
