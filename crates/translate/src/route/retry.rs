//! Retry policies: the route's, else the mesh's, else two attempts on another host if the request cannot have been processed.

use config::duration::Duration;
use config::kinds::virtual_service::HttpRetry;
use wire::any;
use wire::envoy::config::route::v3::{
    RetryPolicy,
    retry_policy::{RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority},
};
use wire::envoy::extensions::retry::host::previous_hosts::v3::PreviousHostsPredicate;
use wire::envoy::extensions::retry::priority::previous_priorities::v3::PreviousPrioritiesConfig;

use crate::proto::{duration, uint32};

const RETRY_ON: &str = "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes";
const BY_STATUS: &str = "retriable-status-codes";

/// `None`: no retries. `sticky`: with a hash policy another host would be wrong.
pub(super) fn policy(own: Option<&HttpRetry>, sticky: bool) -> Option<RetryPolicy> {
    let default = RetryPolicy {
        retry_on: RETRY_ON.into(),
        num_retries: Some(uint32(2)),
        host_selection_retry_max_attempts: 5,
        retry_host_predicate: if sticky { Vec::new() } else { vec![previous_hosts()] },
        ..RetryPolicy::default()
    };
    let Some(own) = own else { return Some(default) };
    let attempts = u32::try_from(own.attempts).ok().filter(|attempts| *attempts > 0)?;
    let (retry_on, retriable_status_codes) = conditions(&own.retry_on);
    Some(RetryPolicy {
        num_retries: Some(uint32(attempts)),
        retry_on,
        retriable_status_codes,
        per_try_timeout: own.per_try_timeout.as_ref().filter(|time| **time >= Duration::ZERO).map(duration),
        retry_host_predicate: match own.retry_ignore_previous_hosts {
            None => default.retry_host_predicate,
            Some(true) => vec![previous_hosts()],
            Some(false) => Vec::new(),
        },
        retry_priority: own.retry_remote_localities.unwrap_or_default().then(previous_priorities),
        retry_back_off: own
            .backoff
            .as_ref()
            .filter(|base| **base > Duration::ZERO)
            .map(|base| RetryBackOff { base_interval: Some(duration(base)), ..RetryBackOff::default() }),
        ..default
    })
}

/// Numbers among the conditions are status codes.
fn conditions(written: &str) -> (String, Vec<u32>) {
    if written.is_empty() {
        return (RETRY_ON.into(), Vec::new());
    }
    let parts = written.split(',').map(str::trim).filter(|part| !part.is_empty());
    let (mut names, mut codes) = (Vec::new(), Vec::new());
    for part in parts {
        match part.parse::<u32>() {
            Ok(code) if is_status(code) => codes.push(code),
            _ => names.push(part),
        }
    }
    let mut text = names.join(",");
    if !codes.is_empty() && !text.contains(BY_STATUS) {
        text.push(',');
        text.push_str(BY_STATUS);
    }
    (text, codes)
}

/// A registered HTTP status.
fn is_status(code: u32) -> bool {
    matches!(
        code,
        100..=103 | 200..=208 | 226 | 300..=305 | 307 | 308 | 400..=418 | 421..=426 | 428 | 429 | 431 | 451 | 500..=508 | 510 | 511
    )
}

fn previous_hosts() -> RetryHostPredicate {
    RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".into(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(any::pack(&PreviousHostsPredicate {}))),
    }
}

fn previous_priorities() -> RetryPriority {
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".into(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(any::pack(&PreviousPrioritiesConfig {
            update_frequency: 2,
        }))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_status_codes() {
        assert_eq!(conditions("5xx, 503,409"), ("5xx,retriable-status-codes".into(), vec![503, 409]));
        assert_eq!(conditions("503"), (",retriable-status-codes".into(), vec![503]));
        assert_eq!(conditions("retriable-status-codes,599"), ("retriable-status-codes,599".into(), vec![]));
    }

    #[test]
    fn no_attempts_are_no_retries() {
        let own = |attempts| HttpRetry { attempts, ..HttpRetry::default() };
        assert!(policy(Some(&own(0)), false).is_none() && policy(Some(&own(-3)), false).is_none());
        assert!(policy(None, false).is_some());
    }
}
