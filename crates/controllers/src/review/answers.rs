//! Answers of the API server, remembered by the hash of the token: as many as fit, the oldest go first. The tokens themselves are not kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::time::Instant;

use super::Account;

/// Nobody can make two tokens with the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        TokenHash(hash)
    }
}

/// What is known of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    Valid(Account),
    /// It was valid, and has to be reviewed again: junk it is not.
    WasValid,
    Invalid(String),
    Nothing,
}

pub(super) struct Answers {
    valid: Bounded<(Account, Instant)>,
    /// Apart, so that junk does not drive out what is valid.
    invalid: Bounded<String>,
}

/// A deleted account is believed for at most this long.
const VALID: Duration = Duration::from_secs(30);
/// So long it is remembered that a token was valid.
const WAS_VALID: Duration = Duration::from_secs(3600);
/// A refused token is not reviewed again before this.
const INVALID: Duration = Duration::from_secs(10);
/// About 400 bytes each: 8 MB.
const MOST_VALID: usize = 20_000;
/// With a reason of up to `LONGEST_REASON` bytes each: 1.5 MB.
const MOST_INVALID: usize = 4_000;
const LONGEST_REASON: usize = 256;

impl Answers {
    pub(super) fn new() -> Answers {
        Answers { valid: Bounded::new(MOST_VALID, WAS_VALID), invalid: Bounded::new(MOST_INVALID, INVALID) }
    }

    pub(super) fn known(&self, token: &TokenHash, now: Instant) -> Known {
        match (self.valid.get(token, now), self.invalid.get(token, now)) {
            (Some((account, until)), _) if now < *until => Known::Valid(account.clone()),
            (_, Some(reason)) => Known::Invalid(reason.clone()),
            (Some(_), None) => Known::WasValid,
            (None, None) => Known::Nothing,
        }
    }

    pub(super) fn remember(&mut self, token: TokenHash, answer: &Result<Account, String>, now: Instant) {
        match answer {
            Ok(account) => {
                self.invalid.remove(&token);
                self.valid.insert(token, (account.clone(), now + VALID), now);
            }
            Err(reason) => {
                self.valid.remove(&token);
                let end = reason.floor_char_boundary(LONGEST_REASON);
                self.invalid.insert(token, reason[..end].to_owned(), now);
            }
        }
    }
}

/// Values that each last as long, and of which there are never more than a number.
struct Bounded<V> {
    most: usize,
    lasts: Duration,
    values: HashMap<TokenHash, (V, Instant)>,
    /// The oldest first; one for each value, and some of values that were removed.
    order: VecDeque<(TokenHash, Instant)>,
}

impl<V> Bounded<V> {
    fn new(most: usize, lasts: Duration) -> Bounded<V> {
        Bounded { most, lasts, values: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&self, token: &TokenHash, now: Instant) -> Option<&V> {
        self.values.get(token).filter(|(_, end)| now < *end).map(|(value, _)| value)
    }

    /// What is replaced ends when it would have ended.
    fn insert(&mut self, token: TokenHash, value: V, now: Instant) {
        if let Some((held, end)) = self.values.get_mut(&token)
            && now < *end
        {
            *held = value;
            return;
        }
        while self.order.front().is_some_and(|(_, end)| *end <= now || self.order.len() >= self.most) {
            let Some((oldest, end)) = self.order.pop_front() else { break };
            if self.values.get(&oldest).is_some_and(|(_, held)| *held == end) {
                self.values.remove(&oldest);
            }
        }
        self.order.push_back((token, now + self.lasts));
        self.values.insert(token, (value, now + self.lasts));
    }

    fn remove(&mut self, token: &TokenHash) {
        self.values.remove(token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cart() -> Account {
        Account { namespace: "shop".into(), name: "cart".into() }
    }

    fn hash(number: usize) -> TokenHash {
        TokenHash::of(&number.to_string())
    }

    #[test]
    fn a_valid_token_is_believed_for_half_a_minute_and_remembered_for_longer() {
        let (mut answers, now) = (Answers::new(), Instant::now());
        assert_eq!(answers.known(&hash(1), now), Known::Nothing);
        answers.remember(hash(1), &Ok(cart()), now);
        assert_eq!(answers.known(&hash(1), now + VALID / 2), Known::Valid(cart()));
        assert_eq!(answers.known(&hash(1), now + VALID), Known::WasValid);
        answers.remember(hash(1), &Ok(cart()), now + VALID);
        assert_eq!(answers.known(&hash(1), now + VALID), Known::Valid(cart()));
        assert_eq!(answers.known(&hash(1), now + WAS_VALID), Known::Nothing);
        answers.remember(hash(1), &Err("the account is gone".into()), now + VALID * 2);
        assert_eq!(answers.known(&hash(1), now + VALID * 2), Known::Invalid("the account is gone".into()));
        assert_eq!(answers.known(&hash(1), now + VALID * 2 + INVALID), Known::Nothing);
    }

    #[test]
    fn a_hundred_thousand_invalid_tokens_take_bounded_memory_and_drive_out_nobody() {
        let (mut answers, now) = (Answers::new(), Instant::now());
        answers.remember(hash(0), &Ok(cart()), now);
        let reason = Err("r".repeat(10_000));
        for number in 1..=100_000 {
            answers.remember(hash(number), &reason, now);
        }
        assert_eq!(answers.known(&hash(0), now), Known::Valid(cart()));
        assert_eq!((answers.invalid.values.len(), answers.invalid.order.len()), (MOST_INVALID, MOST_INVALID));
        let bytes: usize = answers.invalid.values.values().map(|(reason, _)| reason.capacity()).sum();
        assert!(bytes <= MOST_INVALID * LONGEST_REASON, "{bytes}");
        assert_eq!(answers.known(&hash(1), now), Known::Nothing, "the oldest went");
        assert!(matches!(answers.known(&hash(100_000), now), Known::Invalid(_)));
        answers.remember(hash(1), &reason, now + INVALID);
        assert_eq!(answers.invalid.values.len(), 1, "what is over goes with the next");
    }

    #[test]
    fn thirty_thousand_valid_tokens_take_bounded_memory() {
        let (mut answers, now) = (Answers::new(), Instant::now());
        for number in 0..30_000 {
            answers.remember(hash(number), &Ok(cart()), now);
            answers.remember(hash(number), &Err(String::new()), now);
            answers.remember(hash(number), &Ok(cart()), now);
        }
        assert!(answers.valid.values.len() <= MOST_VALID && answers.valid.order.len() <= MOST_VALID);
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let (mut answers, now) = (Answers::new(), Instant::now());
        answers.remember(hash(1), &Err("\u{e9}".repeat(LONGEST_REASON)), now);
        let Known::Invalid(reason) = answers.known(&hash(1), now) else { panic!() };
        assert_eq!(reason.len(), LONGEST_REASON);
    }
}
