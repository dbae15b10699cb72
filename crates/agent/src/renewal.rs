//! Certificate renewal: the first one as soon as possible, the next before the last one expires.

use std::time::{Duration, SystemTime};

use ca::{Identity, KeyType, PrivateKey};
use tokio::time::sleep;

use crate::{CaClient, CertificateCell, WorkloadCertificate};

#[derive(Clone, Debug)]
pub struct Renewal {
    pub identity: Identity,
    pub key: KeyType,
    /// The requested lifetime; the CA may grant less.
    pub lifetime: Duration,
    /// The fraction of a certificate's lifetime after which it is renewed. pilot-agent uses one half.
    pub after: f64,
    /// Jitter, as a fraction of the lifetime, so that a fleet does not renew at once.
    pub jitter: f64,
}

const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Runs as long as the workload. A failure has no effect but a log line until the certificate expires.
pub async fn run_renewal(renewal: Renewal, mut authority: CaClient, certificate: CertificateCell) {
    let mut pause = MIN_BACKOFF;
    loop {
        match obtain(&renewal, &authority).await {
            Ok(current) => {
                let wait = renewal.wait(current.remaining(SystemTime::now()), random_fraction());
                tracing::info!(identity = %renewal.identity, renewal_in = ?wait, "certificate obtained");
                authority.signer.learned = current.roots.clone();
                certificate.set(current);
                pause = MIN_BACKOFF;
                sleep(wait).await;
            }
            Err(problem) => {
                let left = certificate.get().map(|current| current.remaining(SystemTime::now()));
                tracing::warn!(%problem, certificate_left = ?left, retry_in = ?pause, "cannot obtain a certificate");
                sleep(pause).await;
                pause = next_backoff(pause, left);
            }
        }
    }
}

async fn obtain(renewal: &Renewal, authority: &CaClient) -> Result<WorkloadCertificate, String> {
    let key = PrivateKey::generate(renewal.key).map_err(|e| e.to_string())?;
    let csr = key.csr(&renewal.identity).map_err(|e| e.to_string())?;
    let answer = authority.certificate(&csr, renewal.lifetime).await.map_err(|e| e.to_string())?;
    WorkloadCertificate::new(key, &answer, SystemTime::now())
}

impl Renewal {
    /// `left`: of a fresh certificate. `chance`: from 0 to 1.
    fn wait(&self, left: Duration, chance: f64) -> Duration {
        let share = self.after + self.jitter * (2.0 * chance - 1.0);
        left.mul_f64(share.clamp(0.0, 1.0))
    }
}

/// Doubled each time, but short enough to succeed before the expiry.
pub fn next_backoff(pause: Duration, left: Option<Duration>) -> Duration {
    let longest = left.map_or(MAX_BACKOFF, |left| (left / 8).clamp(MIN_BACKOFF, MAX_BACKOFF));
    (pause * 2).min(longest)
}

/// From 0 to 1, not for secrets.
fn random_fraction() -> f64 {
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
        assert_eq!(next_backoff(second, None), 2 * second);
        assert_eq!(next_backoff(50 * second, None), MAX_BACKOFF);
        assert_eq!(next_backoff(50 * second, Some(16 * second)), 2 * second);
        assert_eq!(next_backoff(second, Some(Duration::ZERO)), second);
    }
}
