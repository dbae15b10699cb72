//! The connections of one HTTP port: by address, with their progress and the bytes that they hold. Decides which one loses its place.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::HttpLimits;

pub(super) type ConnectionId = u64;

/// Progress of a response that begins its deadline again.
const PROGRESS: usize = 64 << 10;

pub(super) struct ConnectionTable {
    limits: HttpLimits,
    state: Mutex<TableState>,
}

#[derive(Default)]
struct TableState {
    next: ConnectionId,
    /// In the order in which they were accepted.
    open: BTreeMap<ConnectionId, Entry>,
    held: usize,
}

pub(super) struct Entry {
    network: IpAddr,
    phase: Phase,
    /// When the phase began, or the response last made progress.
    since: Instant,
    written: usize,
    /// Bodies and responses.
    held: usize,
    /// The part of it in responses.
    pub(super) response: usize,
    pub(super) requests: usize,
    pub(super) multiplexed: bool,
    evicted: Arc<Notify>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The head of a request is being received.
    Head,
    /// The request is being received or handled.
    Request,
    /// The response is being written.
    Response,
    Idle,
}

impl Entry {
    pub(super) fn enter(&mut self, phase: Phase) {
        (self.phase, self.since, self.written) = (phase, Instant::now(), 0);
    }

    /// Bytes were received.
    pub(super) fn on_read(&mut self) {
        if self.phase == Phase::Idle && !self.multiplexed {
            self.enter(Phase::Head);
        }
    }

    /// Bytes were written. Between two events of a stream nothing is left to write, so that the connection counts as idle: each event that the
    /// client takes begins the time again.
    pub(super) fn on_write(&mut self, bytes: usize) {
        self.written += bytes;
        if self.phase == Phase::Idle && !self.multiplexed {
            self.since = Instant::now();
        }
        if self.phase == Phase::Response && self.written >= PROGRESS {
            self.enter(Phase::Response);
        }
    }

    /// Requests have a deadline of their own, which is answered.
    fn limit(&self, limits: &HttpLimits) -> Option<Duration> {
        match self.phase {
            Phase::Head => Some(limits.head),
            Phase::Request => None,
            Phase::Response => Some(limits.read),
            Phase::Idle => Some(limits.idle),
        }
    }
}

impl ConnectionTable {
    pub(super) fn new(limits: HttpLimits) -> ConnectionTable {
        ConnectionTable { limits, state: Mutex::default() }
    }

    pub(super) fn limits(&self) -> &HttpLimits {
        &self.limits
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().open.is_empty()
    }

    /// Always has room. The connection must end when it is notified.
    pub(super) fn enter(&self, address: IpAddr) -> (ConnectionId, Arc<Notify>) {
        let network = xds::network(address);
        let mut state = self.state();
        let of_network = state.open.values().filter(|entry| entry.network == network).count();
        if of_network >= self.limits.connections_per_address {
            state.evict_oldest(|_, entry| entry.network == network);
        } else if state.open.len() >= self.limits.connections {
            let largest = Largest::of(state.open.values().map(|entry| (entry.network, 1)));
            state.evict_oldest(|_, entry| largest.contains(entry.network));
        }
        let id = state.next;
        state.next += 1;
        let evicted = Arc::new(Notify::new());
        let entry = Entry {
            network,
            phase: Phase::Head,
            since: Instant::now(),
            written: 0,
            held: 0,
            response: 0,
            requests: 0,
            multiplexed: false,
            evicted: evicted.clone(),
        };
        state.open.insert(id, entry);
        (id, evicted)
    }

    pub(super) fn leave(&self, id: ConnectionId) {
        let mut state = self.state();
        if let Some(entry) = state.open.remove(&id) {
            state.held -= entry.held;
        }
    }

    /// Does nothing for a connection that has lost its place.
    pub(super) fn update(&self, id: ConnectionId, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.state().open.get_mut(&id) {
            change(entry);
        }
    }

    /// Everything that there was to write is written.
    pub(super) fn on_flush(&self, id: ConnectionId) {
        let mut state = self.state();
        let Some(entry) = state.open.get_mut(&id).filter(|entry| entry.phase == Phase::Response) else { return };
        let written = std::mem::take(&mut entry.response);
        entry.held -= written;
        entry.enter(Phase::Idle);
        state.held -= written;
    }

    pub(super) fn hold(&self, id: ConnectionId, bytes: usize) {
        let mut state = self.state();
        let Some(entry) = state.open.get_mut(&id) else { return };
        entry.held += bytes;
        state.held += bytes;
        while state.held > self.limits.held_bytes {
            let is_other = |other: ConnectionId, entry: &Entry| other != id && entry.held > 0;
            let others = state.open.iter().filter(|(other, entry)| is_other(**other, entry));
            let largest = Largest::of(others.map(|(_, entry)| (entry.network, entry.held)));
            if !state.evict_oldest(|other, entry| is_other(other, entry) && largest.contains(entry.network)) {
                return;
            }
        }
    }

    pub(super) fn release(&self, id: ConnectionId, bytes: usize) {
        let mut state = self.state();
        if let Some(entry) = state.open.get_mut(&id) {
            entry.held -= bytes;
            state.held -= bytes;
        }
    }

    /// Closes the connections whose deadline has passed.
    pub(super) fn close_late(&self, now: Instant) {
        let mut state = self.state();
        let is_late = |entry: &Entry| {
            entry.limit(&self.limits).is_some_and(|limit| now.saturating_duration_since(entry.since) >= limit)
        };
        let late: Vec<ConnectionId> =
            state.open.iter().filter(|(_, entry)| is_late(entry)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|id| state.evict(id));
    }

    // Each change leaves the table consistent.
    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    /// A new connection is the youngest: however fast others come, it has the time of as many as the limit allows. `false`: there is no
    /// candidate.
    fn evict_oldest(&mut self, is_candidate: impl Fn(ConnectionId, &Entry) -> bool) -> bool {
        let candidates = self.open.iter().filter(|(id, entry)| is_candidate(**id, entry));
        let oldest = candidates.min_by_key(|(_, entry)| entry.since).map(|(id, _)| *id);
        oldest.into_iter().for_each(|id| self.evict(id));
        oldest.is_some()
    }

    fn evict(&mut self, id: ConnectionId) {
        if let Some(entry) = self.open.remove(&id) {
            self.held -= entry.held;
            entry.evicted.notify_one();
        }
    }
}

/// The networks with the largest sum, which may be several: between them age decides, not the address.
struct Largest {
    sums: HashMap<IpAddr, usize>,
    largest: usize,
}

impl Largest {
    fn of(sizes: impl Iterator<Item = (IpAddr, usize)>) -> Largest {
        let mut sums = HashMap::<IpAddr, usize>::new();
        sizes.for_each(|(network, size)| *sums.entry(network).or_default() += size);
        let largest = sums.values().copied().max().unwrap_or_default();
        Largest { sums, largest }
    }

    fn contains(&self, network: IpAddr) -> bool {
        self.sums.get(&network) == Some(&self.largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HttpLimits = HttpLimits {
        connections: 6,
        connections_per_address: 4,
        held_bytes: 100,
        head: Duration::from_secs(10),
        request: Duration::from_secs(30),
        read: Duration::from_secs(10),
        idle: Duration::from_secs(60),
    };

    fn open(table: &ConnectionTable) -> Vec<ConnectionId> {
        table.state().open.keys().copied().collect()
    }

    async fn tick() {
        tokio::time::advance(Duration::from_millis(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_of_an_address_makes_room() {
        let table = ConnectionTable::new(LIMITS);
        let other = table.enter([10, 0, 0, 2].into()).0;
        for _ in 0..5 {
            tick().await;
            table.enter([10, 0, 0, 1].into());
        }
        assert_eq!(open(&table), [other, 2, 3, 4, 5]);
        tick().await;
        table.update(2, |entry| entry.enter(Phase::Request));
        table.enter([10, 0, 0, 1].into());
        assert_eq!(open(&table), [other, 2, 4, 5, 6], "2 has made progress");
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_most_connections_makes_room_for_others() {
        let table = ConnectionTable::new(LIMITS);
        for last in [1, 2, 1, 2, 1, 3] {
            table.enter([10, 0, 0, last].into());
            tick().await;
        }
        table.enter([10, 0, 0, 4].into());
        assert_eq!(open(&table), [1, 2, 3, 4, 5, 6], "the oldest of 10.0.0.1");
    }

    #[tokio::test(start_paused = true)]
    async fn of_addresses_with_as_many_connections_the_oldest_makes_room() {
        let table = ConnectionTable::new(LIMITS);
        for last in [1, 2, 3, 4, 5, 9, 6, 7, 8] {
            table.enter([10, 0, 0, last].into());
            tick().await;
        }
        assert_eq!(open(&table), [3, 4, 5, 6, 7, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn held_bytes_are_limited_at_the_cost_of_whoever_holds_most() {
        let table = ConnectionTable::new(LIMITS);
        for last in [1, 2, 2] {
            table.enter([10, 0, 0, last].into());
            tick().await;
        }
        [(0, 30), (1, 20), (2, 40)].into_iter().for_each(|(id, bytes)| table.hold(id, bytes));
        table.hold(0, 20);
        assert_eq!((open(&table), table.state().held), (vec![0, 2], 90));
        table.hold(0, 60);
        assert_eq!((open(&table), table.state().held), (vec![0], 110), "one alone may hold more");
        table.release(0, 110);
        table.leave(0);
        assert_eq!(table.state().held, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_deadline() {
        let table = ConnectionTable::new(LIMITS);
        for phase in [Phase::Head, Phase::Request, Phase::Response, Phase::Idle] {
            let (id, _) = table.enter([10, 0, 0, 1].into());
            table.update(id, |entry| entry.enter(phase));
        }
        tokio::time::advance(Duration::from_secs(9)).await;
        table.update(2, |entry| entry.on_write(PROGRESS));
        table.update(0, Entry::on_read);
        tokio::time::advance(Duration::from_secs(1)).await;
        table.close_late(Instant::now());
        assert_eq!(open(&table), [1, 2, 3], "bytes of a head do not begin its time again");
        tokio::time::advance(Duration::from_secs(9)).await;
        table.close_late(Instant::now());
        assert_eq!(open(&table), [1, 3]);
        tokio::time::advance(Duration::from_secs(60)).await;
        table.close_late(Instant::now());
        assert_eq!(open(&table), [1]);
    }
}
