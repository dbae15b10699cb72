//! Slow servers and many sources: others get their keys all the same, and no namespace takes more than its share.

use tokio::task::JoinHandle;

use super::super::requests::MOST_PER_NAMESPACE;
use super::super::slots::Slot;
use super::*;

/// Fetches that do not end by themselves.
struct SlowFetches {
    states: SourceStates,
    slots: Slots,
    now: Instant,
    running: Vec<(JoinHandle<()>, KeySource)>,
}

impl SlowFetches {
    fn new(wanted: &KeyRequests) -> SlowFetches {
        let mut states = SourceStates::new(Schedule::default());
        let now = Instant::now();
        states.want(wanted, now);
        SlowFetches { states, slots: Slots::default(), now, running: Vec::new() }
    }

    /// Takes every slot that can be taken now.
    fn start(&mut self) -> Vec<Slot> {
        let mut started = Vec::new();
        while let Some(due) = self.states.start_due(self.now, &self.slots) {
            let task = tokio::spawn(std::future::pending());
            self.slots.take(task.id(), due.slot.clone());
            self.running.push((task, due.slot.source.clone()));
            started.push(due.slot);
        }
        started
    }

    fn fail_all(&mut self) {
        for (task, source) in self.running.drain(..) {
            self.slots.release(task.id());
            self.states.take(&source, failure(), self.now);
        }
    }
}

fn slow(count: usize, namespace: impl Fn(usize) -> String) -> KeyRequests {
    let source = |number| KeySource::Uri(format!("http://slow-{number:05}.example/k").as_str().into());
    (0..count).map(|number| (source(number), request(&[&namespace(number)]))).collect()
}

/// Last in every order.
const VICTIM: &str = "http://zzz.example/k";

fn with_victim(mut wanted: KeyRequests, namespaces: &[&str]) -> KeyRequests {
    wanted.insert(KeySource::Uri(VICTIM.into()), request(namespaces));
    wanted
}

fn starts_victim(started: &[Slot]) -> bool {
    started.iter().any(|slot| slot.source == KeySource::Uri(VICTIM.into()))
}

#[tokio::test]
async fn slow_sources_of_one_namespace_leave_slots_to_others() {
    for count in [50, 5000] {
        let wanted = slow(count, |_| "a".into());
        let mut fetches = SlowFetches::new(&wanted);
        assert!(fetches.start().len() >= 50, "each of 50 honest ones has its slot");
        fetches.states.want(&with_victim(wanted, &["z"]), fetches.now);
        assert!(starts_victim(&fetches.start()), "{count}");
    }
}

#[tokio::test]
async fn slow_sources_of_many_namespaces_leave_slots_to_others() {
    let wanted = slow(2000, |number| format!("a{}", number % 200));
    let mut fetches = SlowFetches::new(&wanted);
    fetches.start();
    fetches.states.want(&with_victim(wanted, &["z"]), fetches.now);
    assert!(starts_victim(&fetches.start()));
}

#[tokio::test]
async fn sources_that_failed_leave_slots_to_those_that_did_not() {
    let wanted = slow(2000, |number| format!("a{number}"));
    let mut fetches = SlowFetches::new(&wanted);
    while !fetches.start().is_empty() {
        fetches.fail_all();
    }
    fetches.now += Schedule::default().longest_retry;
    assert!(fetches.start().len() > 200);
    fetches.states.want(&with_victim(wanted, &["z"]), fetches.now);
    assert!(starts_victim(&fetches.start()));
}

#[tokio::test]
async fn a_source_that_a_busy_namespace_names_too_is_not_delayed() {
    let wanted = slow(50, |_| "a".into());
    let mut fetches = SlowFetches::new(&with_victim(wanted, &["a", "z"]));
    let started = fetches.start();
    let slot = started.iter().find(|slot| slot.source == KeySource::Uri(VICTIM.into())).expect("it has a slot");
    assert_eq!(&*slot.namespace, "z");
}

#[tokio::test]
async fn a_slow_server_leaves_slots_to_other_servers_of_its_namespace() {
    let source = |number| KeySource::Uri(format!("http://slow.example/{number}").as_str().into());
    let wanted: KeyRequests = (0..500).map(|number| (source(number), request(&["a"]))).collect();
    let mut fetches = SlowFetches::new(&with_victim(wanted, &["a"]));
    assert!(starts_victim(&fetches.start()[..2]));
}

#[tokio::test]
async fn a_slot_is_free_again_after_its_fetch() {
    let mut fetches = SlowFetches::new(&slow(50, |_| "a".into()));
    let count = fetches.start().len();
    fetches.fail_all();
    assert_eq!(fetches.slots.held_by(&"a".into()), 0, "of {count}");
    assert_eq!(fetches.slots.held_for(&"a".into(), &"slow-00000.example".into()), 0);
}

fn policy(namespace: &str, uris: impl Iterator<Item = String>, timeout: &str) -> Table<RequestAuthentication> {
    let timeout: Option<config::duration::Duration> = timeout.parse().ok();
    let rule = |uri| JwtRule { issuer: "i".into(), jwks_uri: uri, timeout, ..JwtRule::default() };
    let spec = RequestAuthentication { jwt_rules: uris.map(rule).collect(), ..RequestAuthentication::default() };
    let meta = Meta { name: "jwt".into(), namespace: namespace.into(), ..Meta::default() };
    std::iter::once((Name::new(namespace, "jwt"), Arc::new(Object { meta, spec }))).collect()
}

#[tokio::test]
async fn a_namespace_has_a_limited_number_of_sources_and_hears_of_it() {
    let many = policy("a", (0..MOST_PER_NAMESPACE + 2).map(|number| format!("http://h/{number:04}")), "");
    let shared = policy("z", std::iter::once(format!("http://h/{MOST_PER_NAMESPACE:04}")), "");
    let wanted = wanted(&many.union(shared));
    let excluded = wanted.iter().filter(|(_, request)| request.namespaces.is_empty());
    let excluded: Vec<String> = excluded.map(|(source, _)| source.to_string()).collect();
    assert_eq!(excluded, [format!("http://h/{:04}", MOST_PER_NAMESPACE + 1)], "z's is fetched for z");
    let mut states = SourceStates::new(Schedule::default());
    let reported = format!("{:?}", states.want(&wanted, Instant::now()));
    assert!(reported.contains("name more than 500 sources of keys"), "{reported}");
    assert!(states.want(&wanted, Instant::now()).is_empty(), "once");
    let fewer: KeyRequests = wanted.into_keys().map(|source| (source, request(&["a"]))).collect();
    states.want(&fewer, Instant::now());
    let mut fetches = SlowFetches { states, slots: Slots::default(), now: Instant::now(), running: Vec::new() };
    let mut count = 0;
    while let started @ 1.. = fetches.start().len() {
        count += started;
        fetches.fail_all();
    }
    assert_eq!(count, MOST_PER_NAMESPACE + 2, "all are fetched when there are few enough");
}

#[tokio::test]
async fn a_short_timeout_of_one_namespace_does_not_cut_off_another() {
    let hasty = policy("a", std::iter::once("http://h/k".to_owned()), "0.001s");
    let patient = policy("z", std::iter::once("http://h/k".to_owned()), "7s");
    let wanted = wanted(&hasty.union(patient));
    assert_eq!(wanted.values().map(|request| request.timeout.as_secs()).collect::<Vec<_>>(), [7]);
}

#[tokio::test]
async fn the_keys_of_a_namespace_have_a_limited_size() {
    let wanted = slow(20, |_| "a".into());
    let mut fetches = SlowFetches::new(&with_victim(wanted, &["z"]));
    let large: Arc<str> = "x".repeat(1 << 20).into();
    let (mut accepted, mut rejected) = (0, 0);
    for slot in fetches.start() {
        let updates = fetches.states.take(&slot.source, Ok(large.clone()), fetches.now);
        let is_accepted = keys_in(&updates).iter().any(Option::is_some);
        assert!(is_accepted || &*slot.namespace == "a");
        if is_accepted { accepted += 1 } else { rejected += 1 }
    }
    assert_eq!((accepted, rejected), (9, 12));
}

#[tokio::test]
async fn fifty_silent_servers_do_not_delay_the_keys_of_another_namespace() {
    let silent = server(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let good = saying(ok(KEYS)).await;
    let source = |text: String| KeySource::Uri(text.as_str().into());
    let patient = |namespace| KeyRequest { timeout: Duration::from_secs(30), ..request(&[namespace]) };
    let mut wanted: KeyRequests =
        (0..50).map(|number| (source(format!("http://{silent}/{number}")), patient("a"))).collect();
    let victim = source(format!("http://{good}/zzz"));
    wanted.insert(victim.clone(), patient("z"));
    let (_want, wanted) = watch::channel(wanted);
    let (out, mut updates) = mpsc::channel(4);
    let task = tokio::spawn(JwksFetcher::new(client(open()), Schedule::default(), wanted, |_| {}).follow(out));
    let first = timeout(Duration::from_secs(5), updates.recv()).await.expect("within 5 s").unwrap();
    assert!(matches!(&first[0], Update::Keys { source, keys: Some(_) } if *source == victim), "{first:?}");
    task.abort();
}
