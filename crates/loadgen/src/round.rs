//! Instructions to the swarm, which proxies each concerns, and how proxies behave. Knows no connections.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    Normal,
    /// Opens its stream and never reads from it: the flow-control window fills up and stays full.
    Stalled,
    /// Reads, and never acknowledges.
    Silent,
    /// Reads little at a time, as over a saturated network.
    Slow,
}

/// Of a hundred proxies, how many do not behave normally.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BehaviourShares {
    pub(crate) stalled: usize,
    pub(crate) silent: usize,
    pub(crate) slow: usize,
}

impl BehaviourShares {
    /// Spread evenly, so that every namespace has its share.
    pub(crate) fn of(self, index: usize) -> Behaviour {
        match spread(index) {
            number if number < self.stalled => Behaviour::Stalled,
            number if number < self.stalled + self.silent => Behaviour::Silent,
            number if number < self.stalled + self.silent + self.slow => Behaviour::Slow,
            _ => Behaviour::Normal,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Nobody has connected yet.
    Wait,
    /// All connect and know nothing.
    Connect,
    /// All connect and say what they hold.
    Reconnect,
    /// So many of a hundred are replaced by proxies that know nothing.
    Replace(usize),
    /// Those whose behaviour is another now connect again.
    ChangeBehaviour,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) number: usize,
    pub(crate) instruction: Instruction,
    pub(crate) shares: BehaviourShares,
}

impl Round {
    pub(crate) fn behaviour(&self, index: usize) -> Behaviour {
        self.shares.of(index)
    }

    pub(crate) fn forgets(&self) -> bool {
        matches!(self.instruction, Instruction::Connect | Instruction::Replace(_))
    }

    fn concerns(&self, index: usize, behaviour: Behaviour) -> bool {
        match self.instruction {
            Instruction::Wait => false,
            Instruction::Connect | Instruction::Reconnect => true,
            // With the number of the round in it: each round replaces other proxies.
            Instruction::Replace(share) => spread(index + 31 * self.number) < share,
            Instruction::ChangeBehaviour => self.behaviour(index) != behaviour,
        }
    }
}

/// The next round that concerns this proxy. `None`: the swarm has ended.
pub(crate) async fn next_round(
    rounds: &mut watch::Receiver<Round>,
    index: usize,
    behaviour: Behaviour,
) -> Option<Round> {
    loop {
        rounds.changed().await.ok()?;
        let round = *rounds.borrow_and_update();
        if round.concerns(index, behaviour) {
            return Some(round);
        }
    }
}

/// A number below 100, each once among a hundred neighbours; each hundred in another order, because proxies of one namespace may be hundreds
/// apart.
pub(crate) fn spread(index: usize) -> usize {
    (index * 37 + index / 100 * 11) % 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_of_a_hundred_are_stalled() {
        let shares = BehaviourShares { stalled: 5, silent: 2, slow: 3 };
        let count = |wanted| (0..1000).filter(|index| shares.of(*index) == wanted).count();
        assert_eq!((count(Behaviour::Stalled), count(Behaviour::Silent), count(Behaviour::Slow)), (50, 20, 30));
    }

    #[test]
    fn no_namespace_is_stalled_as_a_whole() {
        let shares = BehaviourShares { stalled: 5, silent: 0, slow: 0 };
        for namespace in 0..200 {
            let proxies = (0..10_000).filter(|index| index % 200 == namespace);
            let stalled = proxies.filter(|index| shares.of(*index) == Behaviour::Stalled).count();
            assert!((1..=4).contains(&stalled), "{stalled} of 50 in namespace {namespace}");
        }
    }

    #[test]
    fn a_round_concerns_those_it_names() {
        let round = |instruction, number| Round {
            number,
            instruction,
            shares: BehaviourShares { stalled: 5, silent: 0, slow: 0 },
        };
        let concerned =
            |round: Round| (0..1000).filter(|index| round.concerns(*index, Behaviour::Normal)).collect::<Vec<_>>();
        assert_eq!(concerned(round(Instruction::Reconnect, 1)).len(), 1000);
        assert_eq!(concerned(round(Instruction::ChangeBehaviour, 1)).len(), 50);
        let (first, second) =
            (concerned(round(Instruction::Replace(10), 1)), concerned(round(Instruction::Replace(10), 2)));
        assert_eq!((first.len(), second.len()), (100, 100));
        assert_ne!(first, second);
    }
}
