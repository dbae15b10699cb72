//! Request mirroring.

use config::kinds::virtual_service::{Destination, HttpRoute};
use wire::envoy::config::route::v3::route_action::RequestMirrorPolicy;
use wire::envoy::r#type::v3::FractionalPercent;

use super::client::Client;
use crate::fraction::{always, precise, whole};
use crate::proto::boolean;

/// A mirror of 0% is left out.
pub(super) fn policies(client: &Client<'_>, rule: &HttpRoute) -> Vec<RequestMirrorPolicy> {
    let old = match (rule.mirror_percentage, rule.mirror_percent) {
        (Some(percent), _) => (percent.value > 0.0).then(|| precise(percent)),
        (None, Some(percent)) => (percent > 0).then(|| whole(percent)),
        (None, None) => Some(whole(100)),
    };
    let first = rule.mirror.as_deref().zip(old);
    let rest = rule.mirrors.iter().filter_map(|mirror| {
        let share = match mirror.percentage {
            Some(percent) => (percent.value > 0.0).then(|| precise(percent)),
            None => Some(whole(100)),
        };
        mirror.destination.as_ref().zip(share)
    });
    first.into_iter().chain(rest).filter_map(|(to, share)| policy(client, to, share)).collect()
}

fn policy(client: &Client<'_>, to: &Destination, share: FractionalPercent) -> Option<RequestMirrorPolicy> {
    (!to.host.is_empty()).then(|| RequestMirrorPolicy {
        cluster: client.cluster(to).text(),
        runtime_fraction: Some(always(share)),
        trace_sampled: Some(boolean(false)),
        disable_shadow_host_suffix_append: true,
        ..RequestMirrorPolicy::default()
    })
}
