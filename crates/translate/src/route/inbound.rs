//! Inbound routes: inline, one virtual host, one route.

use model::Protocol;
use wire::envoy::config::route::v3::{
    Decorator, RetryPolicy, Route, RouteAction, RouteConfiguration, VirtualHost, route,
    route_action::{ClusterSpecifier, MaxStreamDuration},
};

use crate::proto::{boolean, seconds, uint32};
use crate::stat_pattern::PatternValues;

pub(crate) fn configuration(cluster: &str, named: &PatternValues, protocol: Protocol) -> RouteConfiguration {
    let PatternValues { host, port, .. } = named;
    let route = Route {
        name: "default".into(),
        r#match: Some(super::everything()),
        decorator: Some(Decorator { operation: [host, ":", &port.to_string(), "/*"].concat(), ..Decorator::default() }),
        action: Some(route::Action::Route(RouteAction {
            cluster_specifier: Some(ClusterSpecifier::Cluster(cluster.to_owned())),
            timeout: Some(seconds(0)),
            max_stream_duration: Some(MaxStreamDuration {
                max_stream_duration: Some(seconds(0)),
                grpc_timeout_header_max: Some(seconds(0)),
                ..MaxStreamDuration::default()
            }),
            retry_policy: (!protocol.is_grpc()).then(lost_connection),
            ..RouteAction::default()
        })),
        ..Route::default()
    };
    RouteConfiguration {
        name: cluster.to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: ["inbound|http|", &port.to_string()].concat(),
            domains: vec!["*".into()],
            routes: vec![route],
            ..VirtualHost::default()
        }],
        validate_clusters: Some(boolean(false)),
        ..RouteConfiguration::default()
    }
}

/// Retries requests that were sent on an idle connection while the application closed it.
fn lost_connection() -> RetryPolicy {
    RetryPolicy { retry_on: "reset-before-request".into(), num_retries: Some(uint32(2)), ..RetryPolicy::default() }
}
