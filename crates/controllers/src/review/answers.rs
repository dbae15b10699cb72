//! A bounded cache of TokenReview answers by the hash of the token; the oldest are evicted first. The tokens themselves are not kept.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tokio::time::Instant;

use super::Account;

/// A cryptographic hash, so that collisions cannot be constructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    pub(super) fn of(token: &str) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        TokenHash(hash)
    }
}

/// The cached state of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CachedAnswer {
    Valid(Account),
    /// It was valid, and must be reviewed again with the priority of valid tokens.
    WasValid,
    Invalid(String),
    Nothing,
}

pub(super) struct AnswerCache {
    valid: ExpiringMap<(Account, Instant)>,
    /// Separate, so that junk does not evict valid tokens.
    invalid: ExpiringMap<String>,
}

/// A deleted account is accepted for at most this long.
const VALID_TTL: Duration = Duration::from_secs(30);
/// How long a token counts as formerly valid.
const WAS_VALID_TTL: Duration = Duration::from_secs(3600);
/// A rejected token is not reviewed again before this.
const INVALID_TTL: Duration = Duration::from_secs(10);
/// About 400 bytes each: 8 MB.
const MAX_VALID: usize = 20_000;
/// With a reason of up to `LONGEST_REASON` bytes each: 1.5 MB.
const MAX_INVALID: usize = 4_000;
const LONGEST_REASON: usize = 256;

impl AnswerCache {
    pub(super) fn new() -> AnswerCache {
        AnswerCache {
            valid: ExpiringMap::new(MAX_VALID, WAS_VALID_TTL),
            invalid: ExpiringMap::new(MAX_INVALID, INVALID_TTL),
        }
    }

    pub(super) fn known(&self, token: &TokenHash, now: Instant) -> CachedAnswer {
        match (self.valid.get(token, now), self.invalid.get(token, now)) {
            (Some((account, until)), _) if now < *until => CachedAnswer::Valid(account.clone()),
            (_, Some(reason)) => CachedAnswer::Invalid(reason.clone()),
            (Some(_), None) => CachedAnswer::WasValid,
            (None, None) => CachedAnswer::Nothing,
        }
    }

    pub(super) fn remember(&mut self, token: TokenHash, answer: &Result<Account, String>, now: Instant) {
        match answer {
            Ok(account) => {
                self.invalid.remove(&token);
                self.valid.insert(token, (account.clone(), now + VALID_TTL), now);
            }
            Err(reason) => {
                self.valid.remove(&token);
                let end = reason.floor_char_boundary(LONGEST_REASON);
                self.invalid.insert(token, reason[..end].to_owned(), now);
            }
        }
    }
}

/// A bounded map whose entries expire after a fixed time.
struct ExpiringMap<V> {
    capacity: usize,
    ttl: Duration,
    values: HashMap<TokenHash, (V, Instant)>,
    /// The oldest first; one for each value, and some of values that were removed.
    order: VecDeque<(TokenHash, Instant)>,
}

impl<V> ExpiringMap<V> {
    fn new(capacity: usize, ttl: Duration) -> ExpiringMap<V> {
        ExpiringMap { capacity, ttl, values: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&self, token: &TokenHash, now: Instant) -> Option<&V> {
        self.values.get(token).filter(|(_, end)| now < *end).map(|(value, _)| value)
    }

    /// A replaced value keeps its expiry.
    fn insert(&mut self, token: TokenHash, value: V, now: Instant) {
        if let Some((current, end)) = self.values.get_mut(&token)
            && now < *end
        {
            *current = value;
            return;
        }
        while self.order.front().is_some_and(|(_, end)| *end <= now || self.order.len() >= self.capacity) {
            let Some((oldest, end)) = self.order.pop_front() else { break };
            if self.values.get(&oldest).is_some_and(|(_, expiry)| *expiry == end) {
                self.values.remove(&oldest);
            }
        }
        self.order.push_back((token, now + self.ttl));
        self.values.insert(token, (value, now + self.ttl));
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
        let (mut answers, now) = (AnswerCache::new(), Instant::now());
        assert_eq!(answers.known(&hash(1), now), CachedAnswer::Nothing);
        answers.remember(hash(1), &Ok(cart()), now);
        assert_eq!(answers.known(&hash(1), now + VALID_TTL / 2), CachedAnswer::Valid(cart()));
        assert_eq!(answers.known(&hash(1), now + VALID_TTL), CachedAnswer::WasValid);
        answers.remember(hash(1), &Ok(cart()), now + VALID_TTL);
        assert_eq!(answers.known(&hash(1), now + VALID_TTL), CachedAnswer::Valid(cart()));
        assert_eq!(answers.known(&hash(1), now + WAS_VALID_TTL), CachedAnswer::Nothing);
        answers.remember(hash(1), &Err("the account is gone".into()), now + VALID_TTL * 2);
        assert_eq!(answers.known(&hash(1), now + VALID_TTL * 2), CachedAnswer::Invalid("the account is gone".into()));
        assert_eq!(answers.known(&hash(1), now + VALID_TTL * 2 + INVALID_TTL), CachedAnswer::Nothing);
    }

    #[test]
    fn a_hundred_thousand_invalid_tokens_take_bounded_memory_and_drive_out_nobody() {
        let (mut answers, now) = (AnswerCache::new(), Instant::now());
        answers.remember(hash(0), &Ok(cart()), now);
        let reason = Err("r".repeat(10_000));
        for number in 1..=100_000 {
            answers.remember(hash(number), &reason, now);
        }
        assert_eq!(answers.known(&hash(0), now), CachedAnswer::Valid(cart()));
        assert_eq!((answers.invalid.values.len(), answers.invalid.order.len()), (MAX_INVALID, MAX_INVALID));
        let bytes: usize = answers.invalid.values.values().map(|(reason, _)| reason.capacity()).sum();
        assert!(bytes <= MAX_INVALID * LONGEST_REASON, "{bytes}");
        assert_eq!(answers.known(&hash(1), now), CachedAnswer::Nothing, "the oldest went");
        assert!(matches!(answers.known(&hash(100_000), now), CachedAnswer::Invalid(_)));
        answers.remember(hash(1), &reason, now + INVALID_TTL);
        assert_eq!(answers.invalid.values.len(), 1, "what is over goes with the next");
    }

    #[test]
    fn thirty_thousand_valid_tokens_take_bounded_memory() {
        let (mut answers, now) = (AnswerCache::new(), Instant::now());
        for number in 0..30_000 {
            answers.remember(hash(number), &Ok(cart()), now);
            answers.remember(hash(number), &Err(String::new()), now);
            answers.remember(hash(number), &Ok(cart()), now);
        }
        assert!(answers.valid.values.len() <= MAX_VALID && answers.valid.order.len() <= MAX_VALID);
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let (mut answers, now) = (AnswerCache::new(), Instant::now());
        answers.remember(hash(1), &Err("\u{e9}".repeat(LONGEST_REASON)), now);
        let CachedAnswer::Invalid(reason) = answers.known(&hash(1), now) else { panic!() };
        assert_eq!(reason.len(), LONGEST_REASON);
    }
}
