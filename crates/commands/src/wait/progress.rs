//! What is known about one object after each round of questions: which proxies have acknowledged it, which have not, and why. A replica that
//! does not answer has proxies that nobody knows about; those that it had are waited for until they are back elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use server::{ObjectAcks, ProxyAck};

use crate::replica_pages::OfReplica;

/// A proxy that left and is nowhere after this long does not count any more: its pod is gone, or the object no longer concerns it. Envoy
/// reconnects within seconds.
const GRACE: Duration = Duration::from_secs(10);

/// Which version of the object is waited for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Expected {
    /// At least. `None`: the newest that a replica has.
    pub(super) generation: Option<i64>,
    /// A digest. `None`: any.
    pub(super) content: Option<String>,
}

pub(super) struct Progress {
    expected: Expected,
    proxies: BTreeMap<String, SeenProxy>,
}

struct SeenProxy {
    replica: String,
    ack: ProxyAck,
    /// `None`: it is connected.
    left: Option<Instant>,
}

/// Something that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// `None`: the replica itself.
    pub(super) proxy: Option<String>,
    /// Empty: it is the only one.
    pub(super) replica: String,
    pub(super) why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    Pending(Vec<String>),
    /// With the text of the NACK.
    Rejected(String),
    /// It was connected, and is not any more.
    Disconnected,
    /// The replica does not answer.
    Unreachable(String),
    /// No proxy of the replica is served this version yet.
    NotInForce(String),
    /// The object is invalid, so that it never will be.
    Invalid,
}

impl Why {
    /// More time changes nothing.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Why::Rejected(_) | Why::Invalid)
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Why::Pending(_) => "pending",
            Why::Rejected(_) => "rejected",
            Why::Disconnected => "disconnected",
            Why::Unreachable(_) => "unreachable",
            Why::NotInForce(_) => "notInForce",
            Why::Invalid => "invalid",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Pending(types) => write!(f, "no answer yet to {}", types.join(", ")),
            // Envoy ends its text with a line break, and has a line for each resource.
            Why::Rejected(why) => {
                write!(f, "rejected: {}", why.split_whitespace().collect::<Vec<_>>().join(" "))
            }
            Why::Disconnected => f.write_str("disconnected, and not connected elsewhere"),
            Why::Unreachable(why) => write!(f, "does not answer: {why}"),
            Why::NotInForce(what) => f.write_str(what),
            Why::Invalid => f.write_str("the object is invalid; `meltemi check` and its status say why"),
        }
    }
}

impl Progress {
    pub(super) fn new(expected: Expected) -> Progress {
        Progress { expected, proxies: BTreeMap::new() }
    }

    pub(super) fn generation(&self) -> Option<i64> {
        self.expected.generation
    }

    pub(super) fn proxies(&self) -> usize {
        self.proxies.len()
    }

    pub(super) fn acknowledged(&self) -> usize {
        let acknowledged = |it: &&SeenProxy| it.left.is_none() && it.ack == ProxyAck::Acknowledged;
        self.proxies.values().filter(acknowledged).count()
    }

    /// Returns what is still waited for.
    pub(super) fn update(&mut self, answers: &[OfReplica<Result<ObjectAcks, String>>], now: Instant) -> Vec<Missing> {
        if self.expected.content.is_none() {
            let known = answers.iter().filter_map(|it| it.value.as_ref().ok()?.generation).max();
            self.expected.generation = self.expected.generation.max(known);
        }
        let mut missing = Vec::new();
        let mut connected = BTreeMap::new();
        for OfReplica { replica, value } in answers {
            let why = match value {
                Ok(acks) => {
                    connected.extend(acks.proxies.iter().map(|(proxy, ack)| (proxy, (replica, ack))));
                    self.lacks(acks)
                }
                Err(why) => Some(Why::Unreachable(why.clone())),
            };
            missing.extend(why.map(|why| Missing { proxy: None, replica: replica.clone(), why }));
        }
        for (proxy, seen) in &mut self.proxies {
            if !connected.contains_key(proxy) {
                seen.left.get_or_insert(now);
            }
        }
        self.proxies.retain(|_, seen| seen.left.is_none_or(|left| now.duration_since(left) < GRACE));
        for (proxy, (replica, ack)) in connected {
            let seen = SeenProxy { replica: replica.clone(), ack: ack.clone(), left: None };
            self.proxies.insert(proxy.clone(), seen);
        }
        missing.extend(self.proxies.iter().filter_map(|(proxy, seen)| {
            let why = match &seen.ack {
                _ if seen.left.is_some() => Why::Disconnected,
                ProxyAck::Acknowledged => return None,
                ProxyAck::Pending(types) => Why::Pending(types.clone()),
                ProxyAck::Rejected(why) => Why::Rejected(why.clone()),
            };
            Some(Missing { proxy: Some(proxy.clone()), replica: seen.replica.clone(), why })
        }));
        missing
    }

    /// Why a replica does not serve what is expected. `None`: it does.
    fn lacks(&self, acks: &ObjectAcks) -> Option<Why> {
        let Expected { generation, content } = &self.expected;
        let not_yet = |what: &str| Some(Why::NotInForce(what.to_owned()));
        match generation {
            _ if acks.generation.is_none() && acks.content.is_none() => not_yet("there is no such object"),
            Some(wanted) if acks.generation.is_some_and(|known| known < *wanted) => {
                not_yet("only an older generation is known")
            }
            _ if acks.invalid => Some(Why::Invalid),
            _ if !acks.in_force => not_yet("it is not served yet"),
            _ if content.is_some() && acks.content != *content => {
                not_yet("other content is served than that of the file")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(replica: &str, generation: i64, proxies: &[(&str, ProxyAck)]) -> OfReplica<Result<ObjectAcks, String>> {
        let proxies = proxies.iter().map(|(name, ack)| ((*name).to_owned(), ack.clone())).collect();
        let acks = ObjectAcks {
            generation: Some(generation),
            content: Some(format!("digest {generation}")),
            invalid: false,
            in_force: true,
            proxies,
        };
        OfReplica { replica: replica.to_owned(), value: Ok(acks) }
    }

    fn dead(replica: &str) -> OfReplica<Result<ObjectAcks, String>> {
        OfReplica { replica: replica.to_owned(), value: Err("connection refused".to_owned()) }
    }

    fn names(missing: &[Missing]) -> Vec<(&str, &'static str)> {
        missing.iter().map(|it| (it.proxy.as_deref().unwrap_or(&it.replica), it.why.name())).collect()
    }

    const DONE: ProxyAck = ProxyAck::Acknowledged;

    #[test]
    fn it_is_done_when_every_proxy_of_every_replica_has_acknowledged() {
        let mut progress = Progress::new(Expected::default());
        let (now, pending) = (Instant::now(), ProxyAck::Pending(vec!["rds".into()]));
        let first = progress.update(&[answer("a", 2, &[("p", DONE)]), answer("b", 2, &[("q", pending)])], now);
        assert_eq!(names(&first), [("q", "pending")]);
        assert_eq!((progress.acknowledged(), progress.proxies()), (1, 2));
        let last = progress.update(&[answer("a", 2, &[("p", DONE)]), answer("b", 2, &[("q", DONE)])], now);
        assert_eq!(last, []);
    }

    #[test]
    fn a_replica_with_an_older_generation_is_waited_for() {
        let mut progress = Progress::new(Expected::default());
        let behind = progress.update(&[answer("a", 2, &[]), answer("b", 1, &[])], Instant::now());
        assert_eq!(names(&behind), [("b", "notInForce")]);
        // Also when the one that had the newer one is gone.
        assert_eq!(names(&progress.update(&[answer("b", 1, &[])], Instant::now())), [("b", "notInForce")]);
        let mut later = Progress::new(Expected { generation: Some(3), content: None });
        assert_eq!(names(&later.update(&[answer("a", 2, &[])], Instant::now())), [("a", "notInForce")]);
        let mut other = Progress::new(Expected { generation: None, content: Some("digest 3".into()) });
        assert_eq!(names(&other.update(&[answer("a", 2, &[])], Instant::now())), [("a", "notInForce")]);
        assert_eq!(other.update(&[answer("a", 3, &[])], Instant::now()), []);
    }

    #[test]
    fn proxies_of_a_dead_replica_are_waited_for_until_they_are_back() {
        let mut progress = Progress::new(Expected::default());
        let now = Instant::now();
        progress.update(&[answer("a", 1, &[("p", DONE)]), answer("b", 1, &[("q", DONE)])], now);
        let dying = progress.update(&[answer("a", 1, &[("p", DONE)]), dead("b")], now);
        assert_eq!(names(&dying), [("b", "unreachable"), ("q", "disconnected")]);
        let gone = progress.update(&[answer("a", 1, &[("p", DONE)])], now);
        assert_eq!(names(&gone), [("q", "disconnected")]);
        let back = progress.update(&[answer("a", 1, &[("p", DONE), ("q", DONE)])], now);
        assert_eq!(back, []);
        // One that does not come back is a pod that is gone.
        assert_eq!(names(&progress.update(&[answer("a", 1, &[("p", DONE)])], now)), [("q", "disconnected")]);
        assert_eq!(progress.update(&[answer("a", 1, &[("p", DONE)])], now + GRACE), []);
        assert_eq!(progress.proxies(), 1);
    }

    #[test]
    fn a_rejection_and_an_invalid_object_are_final() {
        let mut progress = Progress::new(Expected::default());
        let rejected = ProxyAck::Rejected("no such\ncluster\n".into());
        let missing = progress.update(&[answer("", 1, &[("p", rejected)])], Instant::now());
        assert_eq!(missing[0].why.to_string(), "rejected: no such cluster");
        assert!(missing.iter().all(|it| it.why.is_final()));
        let mut invalid = answer("", 1, &[]);
        if let Ok(acks) = &mut invalid.value {
            (acks.invalid, acks.in_force) = (true, false);
        }
        assert_eq!(names(&Progress::new(Expected::default()).update(&[invalid], Instant::now())), [("", "invalid")]);
    }
}
