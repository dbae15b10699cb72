//! What all proxies are told at once, and whom it concerns. Knows no connections.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Temper {
    Good,
    /// Opens its stream and never reads from it: the flow-control window fills up and stays full.
    Stalled,
    /// Reads, and never acknowledges.
    Silent,
}

/// Of a hundred proxies, how many are not good.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tempers {
    pub(crate) stalled: usize,
    pub(crate) silent: usize,
}

impl Tempers {
    /// Spread evenly, so that every namespace has its share.
    pub(crate) fn of(self, seat: usize) -> Temper {
        match lot(seat) {
            place if place < self.stalled => Temper::Stalled,
            place if place < self.stalled + self.silent => Temper::Silent,
            _ => Temper::Good,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Nobody has connected yet.
    Wait,
    /// All connect and know nothing.
    Fresh,
    /// All connect and say what they hold.
    Resumed,
    /// So many of a hundred are replaced by proxies that know nothing.
    Replaced(usize),
    /// Those whose temper is another now connect again.
    Tempered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) number: usize,
    pub(crate) call: Call,
    pub(crate) tempers: Tempers,
}

impl Round {
    pub(crate) fn temper(&self, seat: usize) -> Temper {
        self.tempers.of(seat)
    }

    pub(crate) fn forgets(&self) -> bool {
        matches!(self.call, Call::Fresh | Call::Replaced(_))
    }

    fn concerns(&self, seat: usize, temper: Temper) -> bool {
        match self.call {
            Call::Wait => false,
            Call::Fresh | Call::Resumed => true,
            // The number moves the lots on: others are replaced each time.
            Call::Replaced(share) => lot(seat + 31 * self.number) < share,
            Call::Tempered => self.temper(seat) != temper,
        }
    }
}

/// The next round that concerns this proxy. `None`: the swarm has ended.
pub(crate) async fn called(rounds: &mut watch::Receiver<Round>, seat: usize, temper: Temper) -> Option<Round> {
    loop {
        rounds.changed().await.ok()?;
        let round = *rounds.borrow_and_update();
        if round.concerns(seat, temper) {
            return Some(round);
        }
    }
}

/// A hundred neighbours draw all lots, far apart; each hundred in another order, because proxies of one namespace may be hundreds apart.
fn lot(seat: usize) -> usize {
    (seat * 37 + seat / 100 * 11) % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_of_a_hundred_are_stalled() {
        let tempers = Tempers { stalled: 5, silent: 2 };
        let count = |wanted| (0..1000).filter(|seat| tempers.of(*seat) == wanted).count();
        assert_eq!((count(Temper::Stalled), count(Temper::Silent)), (50, 20));
    }

    #[test]
    fn no_namespace_is_stalled_as_a_whole() {
        let tempers = Tempers { stalled: 5, silent: 0 };
        for namespace in 0..200 {
            let seats = (0..10_000).filter(|seat| seat % 200 == namespace);
            let stalled = seats.filter(|seat| tempers.of(*seat) == Temper::Stalled).count();
            assert!((1..=4).contains(&stalled), "{stalled} of 50 in namespace {namespace}");
        }
    }

    #[test]
    fn a_round_concerns_those_it_names() {
        let round = |call, number| Round { number, call, tempers: Tempers { stalled: 5, silent: 0 } };
        let concerned = |round: Round| (0..1000).filter(|seat| round.concerns(*seat, Temper::Good)).collect::<Vec<_>>();
        assert_eq!(concerned(round(Call::Resumed, 1)).len(), 1000);
        assert_eq!(concerned(round(Call::Tempered, 1)).len(), 50);
        let (first, second) = (concerned(round(Call::Replaced(10), 1)), concerned(round(Call::Replaced(10), 2)));
        assert_eq!((first.len(), second.len()), (100, 100));
        assert_ne!(first, second);
    }
}
