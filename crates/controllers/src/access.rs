//! Whether service accounts may read the Secrets of their namespace: a SubjectAccessReview each, cached for a short time and refreshed
//! in the background. Lookups are answered from the cache.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::KubeClient;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tracing::warn;

use crate::object;
use crate::review::Account;

pub struct SecretAccess {
    known: Arc<Mutex<AccessCache>>,
    queue: mpsc::Sender<Account>,
}

type AccessCache = HashMap<Account, Entry>;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// `None`: the API server has not answered yet.
    allowed: Option<bool>,
    /// Not refreshed before `fresh`, not used after `ends`.
    fresh: Instant,
    ends: Instant,
    /// The last lookup.
    last_lookup: Instant,
}

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How long an answer is used while the API server is unavailable, as a multiple of the freshness.
const USED_FOR: u32 = 5;
/// Entries without a lookup for this long are not refreshed, in the same unit.
const REFRESHED_FOR: u32 = 60;
/// The retry interval after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The limits of cache entries and of queued reviews.
const MAX_ENTRIES: usize = 20_000;
const MAX_QUEUED: usize = 1_000;

impl SecretAccess {
    /// An answer is refreshed after `fresh`; `changed` is called when it differs from the one before.
    pub fn new(client: &KubeClient, fresh: Duration, changed: impl Fn() + Send + 'static) -> SecretAccess {
        let (queue, asked) = mpsc::channel(MAX_QUEUED);
        let known = Arc::<Mutex<AccessCache>>::default();
        tokio::spawn(answer(client.with_own_rate_limit(), fresh, known.clone(), asked, changed));
        SecretAccess { known, queue }
    }

    /// `None`: unknown. The API server is asked in the background, also where the answer is stale, and again until it answers.
    pub fn may_read(&self, namespace: &str, service_account: &str) -> Option<bool> {
        let account = Account { namespace: namespace.to_owned(), name: service_account.to_owned() };
        let now = Instant::now();
        let mut known = locked(&self.known);
        let entry = known.get_mut(&account).map(|entry| {
            entry.last_lookup = now;
            *entry
        });
        if entry.is_none_or(|entry| entry.fresh <= now) && self.queue.try_send(account.clone()).is_ok() {
            // One review at a time for each account.
            let before = entry.unwrap_or(Entry { allowed: None, fresh: now, ends: now, last_lookup: now });
            remember(&mut known, account, Entry { fresh: now + RETRY_INTERVAL, ..before }, now);
        }
        entry?.usable(now)
    }
}

impl Entry {
    fn usable(self, now: Instant) -> Option<bool> {
        self.allowed.filter(|_| now < self.ends)
    }
}

async fn answer(
    client: KubeClient,
    fresh: Duration,
    known: Arc<Mutex<AccessCache>>,
    mut asked: mpsc::Receiver<Account>,
    changed: impl Fn(),
) {
    let (mut again, mut logged) = (interval(fresh.min(RETRY_INTERVAL)), String::new());
    loop {
        let accounts = tokio::select! {
            account = asked.recv() => match account {
                Some(account) => vec![account],
                None => return,
            },
            _ = again.tick() => due(&known, fresh),
        };
        for account in accounts {
            match object::create(&client, PATH, &review(&account)).await {
                Ok(review) => {
                    logged.clear();
                    if record(&known, fresh, account, is_allowed(&review)) {
                        changed();
                    }
                }
                Err(failure) => {
                    let why = failure.to_string();
                    if why != logged {
                        let Account { namespace, name } = account;
                        warn!(%failure, namespace, service_account = name, "SubjectAccessReview failed; retrying");
                        logged = why;
                    }
                }
            }
        }
    }
}

/// Accounts with a positive answer that is stale, so that a removed role is noticed, and accounts without any answer.
fn due(known: &Mutex<AccessCache>, fresh: Duration) -> Vec<Account> {
    let now = Instant::now();
    let mut known = locked(known);
    known.retain(|_, entry| entry.last_lookup + fresh * REFRESHED_FOR > now);
    let open = known.iter_mut().filter(|(_, entry)| entry.allowed != Some(false) && entry.fresh <= now);
    let open = open.map(|(account, entry)| {
        entry.fresh = now + RETRY_INTERVAL;
        account.clone()
    });
    open.collect()
}

/// Returns whether the answer differs from the one before.
fn record(known: &Mutex<AccessCache>, fresh: Duration, account: Account, allowed: bool) -> bool {
    let now = Instant::now();
    let mut known = locked(known);
    let last_lookup = known.get(&account).map_or(now, |entry| entry.last_lookup);
    let entry = Entry { allowed: Some(allowed), fresh: now + fresh, ends: now + fresh * USED_FOR, last_lookup };
    let before = remember(&mut known, account, entry, now);
    before.and_then(|before| before.usable(now)) != Some(allowed)
}

fn remember(known: &mut AccessCache, account: Account, entry: Entry, now: Instant) -> Option<Entry> {
    if known.len() >= MAX_ENTRIES && !known.contains_key(&account) {
        known.retain(|_, entry| entry.fresh > now);
        if known.len() >= MAX_ENTRIES {
            return None;
        }
    }
    known.insert(account, entry)
}

/// As istiod: bindings of the account itself count, those of its groups do not.
fn review(Account { namespace, name }: &Account) -> Value {
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
fn locked(known: &Mutex<AccessCache>) -> MutexGuard<'_, AccessCache> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_without_denied_is_accepted() {
        assert!(is_allowed(&json!({ "status": { "allowed": true } })));
        for status in [json!({}), json!({ "allowed": "true" }), json!({ "allowed": true, "denied": true })] {
            assert!(!is_allowed(&json!({ "status": status })), "{status}");
        }
    }

    /// A regression test: a gateway whose first review failed waited until another caller asked.
    #[test]
    fn failed_reviews_are_retried() {
        let (known, second) = (Mutex::<AccessCache>::default(), Duration::from_secs(1));
        let now = Instant::now();
        for (name, allowed, fresh) in [
            ("open", None, now),
            ("asked", None, now + RETRY_INTERVAL),
            ("may", Some(true), now),
            ("may not", Some(false), now),
        ] {
            let account = Account { namespace: "n".into(), name: name.into() };
            locked(&known).insert(account, Entry { allowed, fresh, ends: now, last_lookup: now });
        }
        let mut names: Vec<String> = due(&known, second).into_iter().map(|account| account.name).collect();
        names.sort();
        assert_eq!(names, ["may", "open"]);
        assert!(due(&known, second).is_empty(), "one question at a time");
    }

    #[test]
    fn an_answer_notifies_once_and_expires() {
        let (known, second) = (Mutex::<AccessCache>::default(), Duration::from_secs(1));
        let account = || Account { namespace: "n".into(), name: "a".into() };
        assert!(record(&known, second, account(), false));
        assert!(!record(&known, second, account(), false));
        assert!(record(&known, second, account(), true));
        let entry = locked(&known)[&account()];
        assert_eq!(entry.usable(entry.ends - second), Some(true));
        assert_eq!(entry.usable(entry.ends), None, "not denied");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut known, now) = (AccessCache::new(), Instant::now());
        let later = now + Duration::from_secs(60);
        for number in 0..MAX_ENTRIES + 10 {
            let account = Account { namespace: "n".into(), name: number.to_string() };
            remember(
                &mut known,
                account,
                Entry { allowed: Some(true), fresh: later, ends: later, last_lookup: now },
                now,
            );
        }
        assert_eq!(known.len(), MAX_ENTRIES);
    }
}
