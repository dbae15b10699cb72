//! Authentication of service account tokens by the API server: a TokenReview each, cached for a short time. Anybody can send tokens, so
//! implausible ones are rejected without a review, and reviews have limits of their own: no other request to the API server
//! ever waits for them, and valid tokens do not wait for junk.

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
use sources::kube::{KubeClient, RequestError};
use tokio::time::{Instant, timeout};
use tracing::warn;

use self::answers::{AnswerCache, CachedAnswer, TokenHash};
use self::claims::Claims;
use self::keys::{Keys, Signature};
use self::limits::{Limiter, Limits};
use self::single_flight::SingleFlight;
use crate::object;

/// The service account of a token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

/// Why a token was not authenticated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not valid.
    #[error("{0}")]
    Invalid(String),
    /// No answer; it may be tried again.
    #[error("{0}")]
    Unavailable(String),
}

pub struct TokenReviewer {
    audiences: Vec<String>,
    keys: Keys,
    answers: Mutex<AnswerCache>,
    single_flight: SingleFlight<Result<Account, TokenError>>,
    /// For tokens with a verified signature, or that were valid before: a flood of junk cannot use it.
    trusted: PriorityLevel,
    /// For all others.
    unknown: PriorityLevel,
    /// Tokens rejected by the limits since the last log line, and its time.
    rejected: AtomicU64,
    logged: Mutex<Option<Instant>>,
}

/// Reviews that share their limits, as in API Priority and Fairness.
struct PriorityLevel {
    client: KubeClient,
    limiter: Limiter,
}

impl PriorityLevel {
    fn new(client: &KubeClient, limits: Limits) -> PriorityLevel {
        PriorityLevel { client: client.with_own_rate_limit(), limiter: Limiter::new(limits) }
    }
}

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// The group of all service accounts.
const GROUP: &str = "system:serviceaccounts";
/// The timeout of a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two log lines about limits.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Limits of reviews that are probably valid. After a restart all proxies come at once; those that cannot be served in time try again.
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

/// Half the rate for the others. One address may have few of them in the queue that all addresses share.
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

impl TokenReviewer {
    /// Tokens must be for one of the audiences.
    pub fn new(client: &KubeClient, audiences: Vec<String>) -> TokenReviewer {
        TokenReviewer {
            audiences,
            keys: Keys::follow(client.with_own_rate_limit()),
            answers: Mutex::new(AnswerCache::new()),
            single_flight: SingleFlight::new(),
            trusted: PriorityLevel::new(client, trusted(client.rate())),
            unknown: PriorityLevel::new(client, unknown(client.rate())),
            rejected: AtomicU64::new(0),
            logged: Mutex::default(),
        }
    }

    /// The account of this token, or why it is rejected. `from`: the peer address. Cancel safe: a cancelled caller holds no slot.
    pub async fn account(&self, token: &str, from: IpAddr) -> Result<Account, TokenError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let claims = Claims::of(token, &self.audiences, now);
        let claims = claims.map_err(|why| TokenError::Invalid(format!("implausible token: {why}")))?;
        let hash = TokenHash::of(token);
        let known = self.answers().known(&hash, Instant::now());
        let level = match known {
            CachedAnswer::Valid(account) => return Ok(account),
            CachedAnswer::Invalid(reason) => return Err(TokenError::Invalid(reason)),
            CachedAnswer::WasValid => &self.trusted,
            CachedAnswer::Nothing => match self.keys.check(&claims).await {
                Signature::Verified => &self.trusted,
                Signature::Unknown => &self.unknown,
                Signature::Wrong => {
                    return Err(TokenError::Invalid("the token is not signed by the API server".to_owned()));
                }
            },
        };
        self.single_flight.join(hash, self.review(token, hash, from, level)).await
    }

    async fn review(
        &self,
        token: &str,
        hash: TokenHash,
        from: IpAddr,
        level: &PriorityLevel,
    ) -> Result<Account, TokenError> {
        let Ok(_permit) = level.limiter.acquire(from).await else {
            self.log_limit(from);
            return Err(TokenError::Unavailable("too many pending TokenReviews; try again".to_owned()));
        };
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": self.audiences },
        });
        let late = |_| Err(RequestError::Connection(format!("no answer within {REVIEW_TIMEOUT:?}")));
        let review = timeout(REVIEW_TIMEOUT, object::create(&level.client, PATH, &question)).await.unwrap_or_else(late);
        // An unavailable API server is no answer, and is not cached.
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
    fn answers(&self) -> MutexGuard<'_, AnswerCache> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn account(status: &Value, wanted: &[String]) -> Result<Account, String> {
    // An API server that could not check something may still answer that the token is authenticated.
    let error = status["error"].as_str().filter(|error| !error.is_empty());
    if status["authenticated"] != true || error.is_some() {
        return Err(format!("the API server rejected the token: {}", error.unwrap_or("it gives no reason")));
    }
    // An API server without support for audiences accepts any token, and returns none.
    let named = status["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if !wanted.is_empty() && !named.clone().any(|it| wanted.iter().any(|audience| audience == it)) {
        return Err(format!("the token is not for this audience; it must name one of {}", wanted.join(", ")));
    }
    let user = status["user"]["username"].as_str().unwrap_or_default();
    let parts = user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
    let (namespace, name) = parts.ok_or_else(|| format!("the token's user {user:?} is not a service account"))?;
    // The name alone proves nothing: an authenticator of the API server's may give it to anybody.
    let groups = status["user"]["groups"].as_array();
    if !groups.into_iter().flatten().any(|group| group == GROUP) {
        return Err(format!("the token's user {user:?} is not in the group {GROUP}"));
    }
    Ok(Account { namespace: namespace.to_owned(), name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &Value) -> Result<Account, String> {
        account(status, &["istio-ca".to_owned()])
    }

    #[test]
    fn a_service_account_token_for_our_audience_is_accepted() {
        let user = json!({ "username": "system:serviceaccount:shop:cart", "groups": ["system:serviceaccounts", "system:authenticated"] });
        let good = json!({ "authenticated": true, "audiences": ["istio-ca"], "user": user });
        assert_eq!(answer(&good), Ok(Account { namespace: "shop".into(), name: "cart".into() }));
        let other = json!({ "authenticated": true, "audiences": ["vault"], "user": user });
        assert!(answer(&other).unwrap_err().contains("must name one of istio-ca"));
        let none = json!({ "authenticated": true, "user": user });
        assert!(answer(&none).is_err(), "an API server that ignores audiences proves nothing");
    }

    #[test]
    fn other_tokens_are_rejected_with_a_reason() {
        let person = json!({ "authenticated": true, "audiences": ["istio-ca"], "user": { "username": "alice" } });
        assert_eq!(answer(&person).unwrap_err(), "the token's user \"alice\" is not a service account");
        let bad = json!({ "authenticated": false, "error": "token has expired" });
        assert!(answer(&bad).unwrap_err().ends_with("rejected the token: token has expired"));
        assert!(answer(&json!({})).is_err());
    }

    #[test]
    fn an_authenticated_token_with_an_error_or_without_the_group_is_rejected() {
        let status = |error: &str, groups: &[&str]| {
            let user = json!({ "username": "system:serviceaccount:shop:cart", "groups": groups });
            json!({ "authenticated": true, "audiences": ["istio-ca"], "error": error, "user": user })
        };
        assert!(answer(&status("", &["system:serviceaccounts"])).is_ok());
        let why = answer(&status("a key could not be fetched", &["system:serviceaccounts"])).unwrap_err();
        assert_eq!(why, "the API server rejected the token: a key could not be fetched");
        for groups in [&[][..], &["system:authenticated", "system:serviceaccounts:shop"]] {
            let why = answer(&status("", groups)).unwrap_err();
            assert!(why.ends_with("is not in the group system:serviceaccounts"), "{why}");
        }
    }
}
