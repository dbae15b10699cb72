//! Tokens of service accounts, asked of the API server that issued them: a TokenReview each, remembered for a short while.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use sources::kube::Client;
use tokio::time::Instant;

use crate::object;

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    pub namespace: String,
    pub name: String,
}

pub struct Reviews {
    client: Client,
    audiences: Vec<String>,
    known: Mutex<Known>,
}

/// Answers by token, and until when each holds.
type Known = HashMap<String, (Result<Account, String>, Instant)>;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// A deleted account is believed for at most this long.
const GOOD: Duration = Duration::from_secs(30);
/// A refused token is not asked for again before this.
const BAD: Duration = Duration::from_secs(10);
/// Answers that are remembered.
const MOST: usize = 20_000;
/// Tokens of Kubernetes have about 1 KB.
const LONGEST: usize = 16 << 10;

impl Reviews {
    /// Tokens must be for one of the audiences.
    pub fn new(client: Client, audiences: Vec<String>) -> Reviews {
        Reviews { client, audiences, known: Mutex::default() }
    }

    /// Whose token this is, or why it is not believed. An API server that is away is no answer, and is not remembered.
    pub async fn account(&self, token: &str) -> Result<Account, String> {
        if token.len() > LONGEST {
            return Err(format!("the token has {} bytes; at most {LONGEST} are read", token.len()));
        }
        if let Some((answer, until)) = self.known().get(token)
            && Instant::now() < *until
        {
            return answer.clone();
        }
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": self.audiences },
        });
        let review = object::create(&self.client, PATH, &question).await;
        let review = review.map_err(|failure| format!("the API server could not review the token: {failure}"))?;
        let answer = account(&review["status"], &self.audiences);
        let until = Instant::now() + if answer.is_ok() { GOOD } else { BAD };
        let mut known = self.known();
        if known.len() >= MOST {
            let now = Instant::now();
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST {
            known.insert(token.to_owned(), (answer.clone(), until));
        }
        answer
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
