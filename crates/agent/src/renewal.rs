//! A certificate in time: the first as soon as possible, the next before the last one ends, the old one meanwhile.

use std::time::{Duration, SystemTime};

use ca::{Identity, KeyType, Private};
use tokio::time::sleep;

use crate::{Authority, Held, Holder};

#[derive(Clone, Debug)]
pub struct Renewal {
    pub identity: Identity,
    pub key: KeyType,
    /// What is asked for; the authority may give less.
    pub lifetime: Duration,
    /// The share of a certificate's life after which the next is asked for. pilot-agent takes half.
    pub after: f64,
    /// How much earlier or later than that, as a share of the life, so that a fleet does not ask at once.
    pub jitter: f64,
}

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Runs as long as the workload. A failure costs nothing but a line in the log until the certificate ends.
pub async fn keep(renewal: Renewal, mut authority: Authority, holder: Holder) {
    let mut pause = FIRST_PAUSE;
    loop {
        match obtained(&renewal, &authority).await {
            Ok(held) => {
                let wait = renewal.wait(held.left(SystemTime::now()), chance());
                tracing::info!(identity = %renewal.identity, again_in = ?wait, "got a certificate");
                authority.signer.learned = held.roots.clone();
                holder.set(held);
                pause = FIRST_PAUSE;
                sleep(wait).await;
            }
            Err(problem) => {
                let left = holder.get().map(|held| held.left(SystemTime::now()));
                tracing::warn!(%problem, certificate_left = ?left, retry_in = ?pause, "no certificate");
                sleep(pause).await;
                pause = next_pause(pause, left);
            }
        }
    }
}

async fn obtained(renewal: &Renewal, authority: &Authority) -> Result<Held, String> {
    let key = Private::generate(renewal.key).map_err(|e| e.to_string())?;
    let csr = key.csr(&renewal.identity).map_err(|e| e.to_string())?;
    let answer = authority.certificate(&csr, renewal.lifetime).await.map_err(|e| e.to_string())?;
    Held::new(key, &answer, SystemTime::now())
}

impl Renewal {
    /// `left`: of a fresh certificate. `chance`: from 0 to 1.
    fn wait(&self, left: Duration, chance: f64) -> Duration {
        let share = self.after + self.jitter * (2.0 * chance - 1.0);
        left.mul_f64(share.clamp(0.0, 1.0))
    }
}

/// Twice as long each time, but often enough to succeed before the end.
pub fn next_pause(pause: Duration, left: Option<Duration>) -> Duration {
    let longest = left.map_or(LONGEST_PAUSE, |left| (left / 8).clamp(FIRST_PAUSE, LONGEST_PAUSE));
    (pause * 2).min(longest)
}

/// From 0 to 1, not for secrets.
fn chance() -> f64 {
    use std::hash::{BuildHasher, Hasher};
    let random = std::hash::RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewed_at_four_fifths_with_some_jitter() {
        let renewal = Renewal {
            identity: "spiffe://d/ns/a/sa/b".parse().unwrap(),
            key: KeyType::P256,
            lifetime: Duration::from_secs(100),
            after: 0.8,
            jitter: 0.05,
        };
        let life = Duration::from_secs(100);
        let (early, late) = (renewal.wait(life, 0.0), renewal.wait(life, 1.0));
        assert!((74.9..75.1).contains(&early.as_secs_f64()) && (84.9..85.1).contains(&late.as_secs_f64()));
    }

    #[test]
    fn retries_slow_down_but_not_past_the_end() {
        let second = Duration::from_secs(1);
        assert_eq!(next_pause(second, None), 2 * second);
        assert_eq!(next_pause(50 * second, None), LONGEST_PAUSE);
        assert_eq!(next_pause(50 * second, Some(16 * second)), 2 * second);
        assert_eq!(next_pause(second, Some(Duration::ZERO)), second);
    }
}
