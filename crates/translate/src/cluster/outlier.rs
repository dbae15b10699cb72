//! Outlier detection of a cluster.

use config::kinds::destination_rule::OutlierDetection as Wanted;
use wire::envoy::config::cluster::v3::OutlierDetection;
use wire::envoy::config::common::matcher::v3::{
    HttpHeadersMatch, MatchPredicate,
    match_predicate::{MatchSet, Rule},
};
use wire::envoy::config::route::v3::{HeaderMatcher, header_matcher::HeaderMatchSpecifier};
use wire::envoy::extensions::upstreams::http::v3::{
    HttpProtocolOptions, http_protocol_options::OutlierDetection as HttpOutlierDetection,
};
use wire::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use wire::envoy::r#type::v3::Percent;

use super::policy::Draft;
use crate::proto::{duration, uint32};

/// `sends_unready`: endpoints that are not ready are sent too, so panic mode must be off.
pub(super) fn apply(draft: &mut Draft, wanted: &Wanted, sends_unready: bool) {
    // Any count but zero is enforced.
    let enforced = |count: u32| uint32(if count > 0 { 100 } else { 0 });
    let origin = wanted.consecutive_local_origin_failures.filter(|&count| count > 0);
    let origin = origin.filter(|_| wanted.split_external_local_origin_errors);
    draft.cluster.outlier_detection = Some(OutlierDetection {
        enforcing_success_rate: Some(uint32(0)),
        consecutive_5xx: wanted.consecutive_5xx_errors.map(uint32),
        enforcing_consecutive_5xx: wanted.consecutive_5xx_errors.map(enforced),
        consecutive_gateway_failure: wanted.consecutive_gateway_errors.map(uint32),
        enforcing_consecutive_gateway_failure: wanted.consecutive_gateway_errors.map(enforced),
        interval: wanted.interval.as_ref().map(duration),
        base_ejection_time: wanted.base_ejection_time.as_ref().map(duration),
        max_ejection_percent: u32::try_from(wanted.max_ejection_percent).ok().filter(|&most| most > 0).map(uint32),
        split_external_local_origin_errors: wanted.split_external_local_origin_errors,
        consecutive_local_origin_failure: origin.map(uint32),
        enforcing_consecutive_local_origin_failure: origin.map(enforced),
        enforcing_local_origin_success_rate: wanted.split_external_local_origin_errors.then(|| uint32(0)),
        ..OutlierDetection::default()
    });
    if let Some(error_matcher) = errors(&wanted.outlier_detection_http_error_codes) {
        let options = draft.options.get_or_insert_with(HttpProtocolOptions::default);
        options.outlier_detection = Some(HttpOutlierDetection { error_matcher: Some(error_matcher) });
    }
    if wanted.min_health_percent >= 0 {
        let least = if sends_unready { 0 } else { wanted.min_health_percent };
        draft.common_lb_config().healthy_panic_threshold = Some(Percent { value: f64::from(least) });
    }
}

/// Status codes that count as errors; `None`: 5xx.
fn errors(codes: &[u32]) -> Option<MatchPredicate> {
    let mut rules: Vec<_> = codes.iter().map(|code| MatchPredicate { rule: Some(status(*code)) }).collect();
    match rules.len() {
        0 => None,
        1 => rules.pop(),
        _ => Some(MatchPredicate { rule: Some(Rule::OrMatch(MatchSet { rules })) }),
    }
}

fn status(code: u32) -> Rule {
    let exact = StringMatcher { match_pattern: Some(MatchPattern::Exact(code.to_string())), ignore_case: false };
    Rule::HttpResponseHeadersMatch(HttpHeadersMatch {
        headers: vec![HeaderMatcher {
            name: ":status".into(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(exact)),
            ..HeaderMatcher::default()
        }],
    })
}
