//! Connections, and the bytes that are kept for them: buffers (parts of requests, responses that are not read), limited for each connection, for
//! each address and in total, and what streams keep (names that they subscribe to, long nodes), limited for each address and in total. Both together
//! take from a pool that all addresses share. Bytes that streams share are counted once, or not at all.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    protocol::names::Charge,
    server::{byte_pool::BytePool, metrics::Metrics, stream_error::StreamError},
};

/// Of all ports of a server.
pub(crate) struct ByteBudget {
    limits: BudgetLimits,
    bytes: AtomicUsize,
    kept_bytes: AtomicUsize,
    pool: BytePool,
    addresses: Mutex<Addresses>,
    metrics: Arc<Metrics>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BudgetLimits {
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
    pub(crate) bytes_per_connection: usize,
    pub(crate) bytes_per_address: usize,
    pub(crate) bytes: usize,
    pub(crate) kept_bytes_per_address: usize,
    pub(crate) kept_bytes: usize,
    /// What an address may have of both kinds without taking from the pool.
    pub(crate) reserved_per_address: usize,
    /// Of all addresses, beyond what is reserved for each.
    pub(crate) pool_bytes: usize,
}

/// Which limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteLimit {
    Connection,
    Address,
    Pool,
    All,
}

impl ByteLimit {
    pub(crate) const ALL: [ByteLimit; 4] = [ByteLimit::Connection, ByteLimit::Address, ByteLimit::Pool, ByteLimit::All];

    pub(crate) fn label(self) -> &'static str {
        match self {
            ByteLimit::Connection => "connection",
            ByteLimit::Address => "address",
            ByteLimit::Pool => "pool",
            ByteLimit::All => "all",
        }
    }
}

#[derive(Default)]
struct Addresses {
    connections: usize,
    by_network: HashMap<IpAddr, Address>,
}

#[derive(Default)]
struct Address {
    connections: usize,
    bytes: Arc<AddressBytes>,
}

#[derive(Default)]
struct AddressBytes {
    buffered: AtomicUsize,
    kept: AtomicUsize,
    /// Of both kinds, as the pool counts them.
    both: AtomicUsize,
}

/// The account of one connection, which counts until this is dropped.
pub(crate) struct ConnectionBytes {
    budget: Arc<ByteBudget>,
    network: IpAddr,
    bytes: AtomicUsize,
    of_address: Arc<AddressBytes>,
}

/// Bytes that streams keep, counted until this is dropped. Names may outlive the connection that they were first sent on.
struct KeptBytes {
    budget: Arc<ByteBudget>,
    of_address: Arc<AddressBytes>,
    bytes: usize,
    /// They count for all addresses too.
    in_total: bool,
}

/// Bytes of one buffer, counted until this is dropped.
pub(crate) struct HeldBytes {
    connection: Arc<ConnectionBytes>,
    bytes: usize,
}

impl ByteBudget {
    pub(crate) fn new(limits: BudgetLimits, metrics: Arc<Metrics>) -> Arc<ByteBudget> {
        let [bytes, kept_bytes] = [const { AtomicUsize::new(0) }; 2];
        let pool = BytePool::new(limits.pool_bytes, limits.reserved_per_address);
        Arc::new(ByteBudget { limits, bytes, kept_bytes, pool, addresses: Mutex::default(), metrics })
    }

    /// `None`: there are as many connections as the limits allow.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr) -> Option<Arc<ConnectionBytes>> {
        let network = network(address);
        let mut addresses = self.addresses();
        if addresses.connections >= self.limits.connections {
            return None;
        }
        let entry = addresses.by_network.entry(network).or_default();
        if entry.connections >= self.limits.connections_per_address {
            return None;
        }
        entry.connections += 1;
        let of_address = entry.bytes.clone();
        addresses.connections += 1;
        Some(Arc::new(ConnectionBytes { budget: self.clone(), network, bytes: AtomicUsize::new(0), of_address }))
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pool_is_used_up(&self) -> StreamError {
        StreamError::PoolUsedUp { limit: self.limits.pool_bytes }
    }

    fn refused(&self, limit: ByteLimit, error: StreamError) -> StreamError {
        self.metrics.count_refused_bytes(limit);
        error
    }

    /// Bytes that are buffered, and those that are kept, not counting what waits for a reply.
    pub(crate) fn bytes(&self) -> [usize; 2] {
        [&self.bytes, &self.kept_bytes].map(|counter| counter.load(Ordering::Relaxed))
    }

    /// Bytes that were taken from the pool.
    pub(crate) fn pooled_bytes(&self) -> usize {
        self.pool.bytes()
    }
}

impl ConnectionBytes {
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize) -> Result<HeldBytes, StreamError> {
        self.take(bytes)?;
        Ok(HeldBytes { connection: self.clone(), bytes })
    }

    /// To be resized.
    pub(crate) fn nothing(self: &Arc<Self>) -> HeldBytes {
        HeldBytes { connection: self.clone(), bytes: 0 }
    }

    /// Counts what a stream keeps, and no other stream has.
    pub(crate) fn keep(&self, bytes: usize) -> Result<Charge, StreamError> {
        self.counted(bytes, true)
    }

    /// Counts what a stream keeps for its next reply, for its address only: when thousands of proxies reconnect at once, each has something.
    pub(crate) fn keep_until_reply(&self, bytes: usize) -> Result<Charge, StreamError> {
        self.counted(bytes, false)
    }

    fn counted(&self, bytes: usize, in_total: bool) -> Result<Charge, StreamError> {
        let (budget, of_address) = (self.budget.clone(), self.of_address.clone());
        let kept = KeptBytes { budget, of_address, bytes, in_total };
        let mut exceeded = None;
        for (counter, limit, of) in kept.counters() {
            if counter.fetch_add(bytes, Ordering::Relaxed) + bytes > limit {
                exceeded.get_or_insert((of, StreamError::TooManyKeptBytes { limit }));
            }
        }
        if !self.budget.pool.add(&self.of_address.both, bytes) {
            exceeded.get_or_insert((ByteLimit::Pool, self.budget.pool_is_used_up()));
        }
        // What was added is given back with `kept`.
        exceeded.map_or(Ok(Box::new(kept) as Charge), |(limit, error)| Err(self.budget.refused(limit, error)))
    }

    /// The first buffer of each account is admitted whatever its size, so that no limit makes a long response impossible.
    fn take(&self, bytes: usize) -> Result<(), StreamError> {
        let counters = self.counters();
        let before = counters.map(|(counter, ..)| counter.fetch_add(bytes, Ordering::Relaxed));
        let mut counted = before.iter().zip(counters);
        let exceeded = counted.find(|(before, (_, limit, _))| **before > 0 && **before + bytes > *limit);
        let exceeded = exceeded.map(|(_, (_, limit, of))| (of, StreamError::TooManyBytes { limit }));
        let fits = self.budget.pool.add(&self.of_address.both, bytes);
        let [_, of_address, _] = before;
        let of_pool = || (!fits && of_address > 0).then(|| (ByteLimit::Pool, self.budget.pool_is_used_up()));
        if let Some((limit, error)) = exceeded.or_else(of_pool) {
            self.release(bytes);
            return Err(self.budget.refused(limit, error));
        }
        Ok(())
    }

    fn release(&self, bytes: usize) {
        for (counter, ..) in self.counters() {
            counter.fetch_sub(bytes, Ordering::Relaxed);
        }
        self.budget.pool.remove(&self.of_address.both, bytes);
    }

    fn counters(&self) -> [(&AtomicUsize, usize, ByteLimit); 3] {
        let limits = &self.budget.limits;
        [
            (&self.bytes, limits.bytes_per_connection, ByteLimit::Connection),
            (&self.of_address.buffered, limits.bytes_per_address, ByteLimit::Address),
            (&self.budget.bytes, limits.bytes, ByteLimit::All),
        ]
    }
}

impl KeptBytes {
    fn counters(&self) -> impl Iterator<Item = (&AtomicUsize, usize, ByteLimit)> {
        let ByteBudget { limits, kept_bytes, .. } = &*self.budget;
        let of_all = self.in_total.then_some((kept_bytes, limits.kept_bytes, ByteLimit::All));
        [(&self.of_address.kept, limits.kept_bytes_per_address, ByteLimit::Address)].into_iter().chain(of_all)
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        for (counter, ..) in self.counters() {
            counter.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.budget.pool.remove(&self.of_address.both, self.bytes);
    }
}

impl Drop for ConnectionBytes {
    fn drop(&mut self) {
        let mut addresses = self.budget.addresses();
        addresses.connections -= 1;
        if let Some(entry) = addresses.by_network.get_mut(&self.network) {
            entry.connections -= 1;
            if entry.connections == 0 {
                addresses.by_network.remove(&self.network);
            }
        }
    }
}

impl HeldBytes {
    /// After an error it holds as much as before.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), StreamError> {
        if bytes > self.bytes {
            self.connection.take(bytes - self.bytes)?;
        } else {
            self.connection.release(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.connection.release(self.bytes);
    }
}

/// What counts as one address: for IPv6 the /64 of a host, which has many addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & (u128::MAX << 64)).into()),
        address => address,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use prometheus::Registry;

    use super::*;

    pub(crate) const UNLIMITED: BudgetLimits = BudgetLimits {
        connections: usize::MAX,
        connections_per_address: usize::MAX,
        bytes_per_connection: usize::MAX,
        bytes_per_address: usize::MAX,
        bytes: usize::MAX,
        kept_bytes_per_address: usize::MAX,
        kept_bytes: usize::MAX,
        reserved_per_address: usize::MAX,
        pool_bytes: usize::MAX,
    };

    pub(crate) fn budget(limits: BudgetLimits) -> Arc<ByteBudget> {
        ByteBudget::new(limits, Metrics::new(&Registry::new()).expect("a fresh registry"))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn connections_are_limited_per_address_and_in_total() {
        let budget = budget(BudgetLimits { connections: 3, connections_per_address: 2, ..UNLIMITED });
        let first = budget.open(address("10.0.0.1"));
        let _second = budget.open(address("::ffff:10.0.0.1")).expect("room for two");
        assert!(budget.open(address("10.0.0.1")).is_none());
        let _third = budget.open(address("10.0.0.2")).expect("another address");
        assert!(budget.open(address("10.0.0.3")).is_none(), "three in total");
        drop(first);
        assert!(budget.open(address("10.0.0.1")).is_some());
        let addresses = budget.addresses();
        assert_eq!((addresses.connections, addresses.by_network.len()), (2, 2));
    }

    #[test]
    fn bytes_are_limited_per_connection_per_address_and_in_total() {
        let limits = BudgetLimits { bytes_per_connection: 10, bytes_per_address: 15, bytes: 20, ..UNLIMITED };
        let budget = budget(limits);
        let [one, two] = [(); 2].map(|()| budget.open(address("fd00::1:1")).expect("room"));
        let other = budget.open(address("fd00::2:1")).expect("room");
        let mut held = one.hold(10).expect("the limit of a connection");
        assert_eq!(one.hold(1).err(), Some(StreamError::TooManyBytes { limit: 10 }));
        let of_two = two.hold(5).expect("the limit of an address");
        assert_eq!(two.hold(1).err(), Some(StreamError::TooManyBytes { limit: 15 }));
        assert_eq!(other.hold(1).err(), Some(StreamError::TooManyBytes { limit: 15 }), "a host has a /64");
        let stranger = budget.open(address("fd01::1")).expect("room");
        let of_stranger = stranger.hold(5).expect("the limit of all");
        assert_eq!(stranger.hold(1).err(), Some(StreamError::TooManyBytes { limit: 20 }));
        held.resize(4).expect("less");
        assert_eq!((held.resize(11), held.bytes()), (Err(StreamError::TooManyBytes { limit: 10 }), 4));
        drop((held, of_two, of_stranger));
        assert_eq!(budget.bytes.load(Ordering::Relaxed), 0, "rejected bytes are not counted");
        assert!(one.hold(100).is_ok(), "the first buffer may be of any size");
    }

    #[test]
    fn kept_bytes_are_limited_per_address_and_in_total() {
        let budget = budget(BudgetLimits { kept_bytes_per_address: 10, kept_bytes: 15, ..UNLIMITED });
        let [one, two] = [(); 2].map(|()| budget.open(address("10.0.0.1")).expect("room"));
        let first = one.keep(10).expect("the limit of an address");
        assert_eq!(two.keep(1).err(), Some(StreamError::TooManyKeptBytes { limit: 10 }));
        let other = budget.open(address("10.0.0.2")).expect("room");
        let second = other.keep(5).expect("the limit of all");
        assert_eq!(other.keep(1).err(), Some(StreamError::TooManyKeptBytes { limit: 15 }));
        assert_eq!(other.keep_until_reply(6).err(), Some(StreamError::TooManyKeptBytes { limit: 10 }));
        assert!(other.keep_until_reply(5).is_ok(), "only its address has a limit for that");
        drop(first);
        assert!(two.keep(10).is_ok(), "rejected bytes are not counted");
        drop(second);
        assert_eq!(budget.kept_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn both_kinds_take_from_one_pool_and_each_address_leaves_room_for_others() {
        let limits = BudgetLimits { reserved_per_address: 10, pool_bytes: 90, ..UNLIMITED };
        let budget = budget(limits);
        let open = |address: &str| budget.open(self::address(address)).expect("room");
        let greedy: Vec<_> = ["10.0.0.1", "10.0.0.2"].map(open).into();
        let mut taken = Vec::new();
        let mut refused = 0;
        for round in 0..200 {
            for one in &greedy {
                // Alternately: a buffer, names, an answer to made-up names.
                let charge = match round % 3 {
                    0 => one.hold(1).map(|held| Box::new(held) as Charge),
                    1 => one.keep(1),
                    _ => one.keep_until_reply(1),
                };
                match charge {
                    Ok(charge) => taken.push(charge),
                    Err(error) => {
                        assert_eq!(error, StreamError::PoolUsedUp { limit: 90 });
                        refused += 1;
                    }
                }
            }
        }
        assert_eq!((taken.len(), budget.pooled_bytes()), (2 * (10 + 30), 60), "a third for each, and a third is left");
        assert_eq!(budget.metrics.refused_bytes(ByteLimit::Pool), refused);
        let others: Vec<_> = (0..20).map(|n| open(&format!("10.0.1.{n}"))).collect();
        let reserved: Vec<_> = others.iter().map(|other| other.keep(10)).collect();
        assert!(reserved.iter().all(Result::is_ok), "what is reserved is there for everybody");
        let more = others[0].keep(15);
        assert!(more.is_ok(), "half of what is left");
        assert!(others[0].keep(1).is_err());
        assert!(others[1].hold(50).is_ok(), "the first buffer may be of any size");
        drop((taken, reserved, more));
        assert_eq!((budget.pooled_bytes(), budget.bytes()), (0, [0, 0]), "rejected bytes are not counted");
    }
}
