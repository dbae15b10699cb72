//! Tokens of service accounts, asked of the API server that issued them: a TokenReview each, remembered for a short while. Anybody can send
//! tokens, so what cannot be true is refused without asking, and what is asked has limits of its own: no other request to the API server
//! ever waits for these, and valid tokens do not wait for junk.

mod answers;
mod claims;
mod keys;
mod limits;
mod single_flight;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sources::kube::{Client, Failure};
use tokio::time::{Instant, timeout};
use tracing::warn;

use self::answers::{Answers, Known, TokenHash};
use self::claims::Claims;
use self::keys::{Keys, Signature};
use self::limits::{Limiter, Limits};
use self::single_flight::SingleFlight;
use crate::object;

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

/// Why it is not known whose token it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not valid.
    #[error("{0}")]
    Invalid(String),
    /// Nobody could be asked; it may be tried again.
    #[error("{0}")]
    Unavailable(String),
}

pub struct Reviews {
    audiences: Vec<String>,
    keys: Keys,
    answers: Mutex<Answers>,
    single_flight: SingleFlight<Result<Account, TokenError>>,
    /// For tokens whose signature was verified, or that were valid before: a flood of junk cannot use it.
    trusted: PriorityLevel,
    /// For all others.
    unknown: PriorityLevel,
    /// Tokens that were rejected by the limits since that was last logged, and when.
    rejected: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

/// Reviews that share their limits, as the priority levels of an API server do.
struct PriorityLevel {
    client: Client,
    limiter: Limiter,
}

impl PriorityLevel {
    fn new(client: &Client, limits: Limits) -> PriorityLevel {
        PriorityLevel { client: client.with_own_rate_limit(), limiter: Limiter::new(limits) }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// So long a review may take.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two log lines about limits.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Of reviews that are worth their while. After a restart all proxies come at once; those that cannot be served in time try again.
fn trusted(rate: u32) -> Limits {
    Limits {
        per_second: rate,
        concurrent: 16,
        concurrent_per_address: 8,
        pending: 10_000,
        pending_per_address: 5_000,
        max_wait: Duration::from_secs(5),
    }
}

/// Half as many of the others. One address has few of them in the line that all addresses share.
fn unknown(rate: u32) -> Limits {
    Limits {
        per_second: (rate / 2).max(1),
        concurrent: 8,
        concurrent_per_address: 2,
        pending: 2_000,
        pending_per_address: 100,
        max_wait: Duration::from_secs(2),
    }
}

impl Reviews {
    /// Tokens must be for one of the audiences.
    pub fn new(client: &Client, audiences: Vec<String>) -> Reviews {
        Reviews {
            audiences,
            keys: Keys::follow(client.with_own_rate_limit()),
            answers: Mutex::new(Answers::new()),
            single_flight: SingleFlight::new(),
            trusted: PriorityLevel::new(client, trusted(client.rate())),
            unknown: PriorityLevel::new(client, unknown(client.rate())),
            rejected: AtomicU64::new(0),
            logged: Mutex::default(),
        }
    }

    /// Whose token this is, or why it is not believed. `from`: who shows it. Safe to cancel: whoever goes away takes up no room.
    pub async fn account(&self, token: &str, from: IpAddr) -> Result<Account, TokenError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let claims = Claims::of(token, &self.audiences, now);
        let claims = claims.map_err(|why| TokenError::Invalid(format!("the token cannot be valid: {why}")))?;
        let hash = TokenHash::of(token);
        let known = self.answers().known(&hash, Instant::now());
        let level = match known {
            Known::Valid(account) => return Ok(account),
            Known::Invalid(reason) => return Err(TokenError::Invalid(reason)),
            Known::WasValid => &self.trusted,
            Known::Nothing => match self.keys.check(&claims).await {
                Signature::Verified => &self.trusted,
                Signature::Unknown => &self.unknown,
                Signature::Wrong => {
                    return Err(TokenError::Invalid("the token's signature is not the API server's".to_owned()));
                }
            },
        };
        self.single_flight.join(hash, self.reviewed(token, hash, from, level)).await
    }

    async fn reviewed(
        &self,
        token: &str,
        hash: TokenHash,
        from: IpAddr,
        level: &PriorityLevel,
    ) -> Result<Account, TokenError> {
        let Ok(_permit) = level.limiter.acquire(from).await else {
            self.log_limit(from);
            return Err(TokenError::Unavailable("too many tokens have to be reviewed; try again".to_owned()));
        };
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": self.audiences },
        });
        let late = |_| Err(Failure::Connection(format!("no answer within {REVIEW_TIMEOUT:?}")));
        let review = timeout(REVIEW_TIMEOUT, object::create(&level.client, PATH, &question)).await.unwrap_or_else(late);
        // An API server that is away is no answer, and is not remembered.
        let review = review.map_err(|failure| {
            TokenError::Unavailable(format!("the API server could not review the token: {failure}"))
        })?;
        let answer = account(&review["status"], &self.audiences);
        self.answers().remember(hash, &answer, Instant::now());
        answer.map_err(TokenError::Invalid)
    }

    fn log_limit(&self, from: IpAddr) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            let count = self.rejected.swap(0, Ordering::Relaxed);
            warn!(count, last = %from, "TokenReviews are over their limit: tokens were rejected without one");
        }
    }

    // Answers are replaced whole.
    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn account(status: &Value, wanted: &[String]) -> Result<Account, String> {
    if status["authenticated"] != true {
        let why = status["error"].as_str().unwrap_or("it gives no reason");
        return Err(format!("the API server does not believe the token: {why}"));
    }
    // An API server that knows no audiences believes a token for any of them, and names none.
    let named = status["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if !wanted.is_empty() && !named.clone().any(|it| wanted.iter().any(|audience| audience == it)) {
        return Err(format!("the token is not for this audience; it must name one of {}", wanted.join(", ")));
    }
    let user = status["user"]["username"].as_str().unwrap_or_default();
    let parts = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = parts.ok_or_else(|| format!("the token is of {user:?}, which is no service account"))?;
    Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &Value) -> Result<Account, String> {
        account(status, &["istio-ca".to_owned()])
    }

    #[test]
    fn a_service_account_for_our_audience_is_believed() {
        let user = json!({ "username": "system:serviceaccount:shop:cart" });
        let good = json!({ "authenticated": true, "audiences": ["istio-ca"], "user": user });
        assert_eq!(answer(&good), Ok(Account { namespace: "shop".into(), name: "cart".into() }));
        let other = json!({ "authenticated": true, "audiences": ["vault"], "user": user });
        assert!(answer(&other).unwrap_err().contains("must name one of istio-ca"));
        let none = json!({ "authenticated": true, "user": user });
        assert!(answer(&none).is_err(), "an API server that ignores audiences proves nothing");
    }

    #[test]
    fn everybody_else_hears_why_not() {
        let person = json!({ "authenticated": true, "audiences": ["istio-ca"], "user": { "username": "alice" } });
        assert_eq!(answer(&person).unwrap_err(), "the token is of \"alice\", which is no service account");
        let bad = json!({ "authenticated": false, "error": "token has expired" });
        assert!(answer(&bad).unwrap_err().ends_with("does not believe the token: token has expired"));
        assert!(answer(&json!({})).is_err());
    }
}
