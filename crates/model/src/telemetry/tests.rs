//! The merged telemetry of a workload from objects of several levels.

use config::object::{AnyObject, parse_documents};

use super::*;
use crate::percent::Percentage;

const MESH: &str = "
extensionProviders:
- {name: one, envoyFileAccessLog: {path: /one}}
- {name: two, envoyFileAccessLog: {path: /two}}
- {name: known, envoyHttpAls: {service: logs.shop, port: 1}}
- {name: unknown, envoyHttpAls: {service: nowhere, port: 1}}
- {name: zip, zipkin: {service: spans.shop, port: 1}}
- {name: dog, datadog: {service: dogs.shop, port: 1}}
";

/// The telemetry of a workload of `shop` with the label `app: cart`. Objects: `namespace selector spec`, oldest first.
fn telemetry(mesh: &str, objects: &[(&str, &str, &str)]) -> WorkloadTelemetry {
    let (config, _) = MeshConfig::parse(&format!("{MESH}{mesh}"), "mesh").expect("a mesh config");
    let text: Vec<String> = objects
        .iter()
        .enumerate()
        .map(|(index, (namespace, app, spec))| {
            let selector = if app.is_empty() { String::new() } else { format!("selector: {{matchLabels: {{app: {app}}}}}, ") };
            format!(
                "{{apiVersion: telemetry.istio.io/v1, kind: Telemetry, metadata: {{name: t{index}, namespace: {namespace}}}, spec: {{{selector}{spec}}}}}"
            )
        })
        .collect();
    let parsed = parse_documents("objects", &text.join("\n---\n"));
    assert!(parsed.rejected.is_empty(), "{:?}", parsed.diagnostics);
    let objects: Vec<_> = parsed
        .objects
        .into_iter()
        .map(|object| match object {
            AnyObject::Telemetry(object) => object,
            other => panic!("{other:?}"),
        })
        .collect();
    let labels = [("app", "cart")].into_iter().collect();
    Telemetries::new(objects.iter(), "istio-system").of("shop", &labels, &config, &|service| service != "nowhere")
}

fn logs(telemetry: &WorkloadTelemetry) -> (String, String) {
    let shown = |logs: &AccessLogs| match logs {
        AccessLogs::Mesh => "mesh".to_owned(),
        AccessLogs::To(list) => {
            let one = |to: &AccessLogProvider| {
                format!("{}{}", to.provider, to.filter.as_ref().map_or(String::new(), |f| format!("({f})")))
            };
            list.iter().map(one).collect::<Vec<_>>().join(" ")
        }
    };
    (shown(&telemetry.client.logs), shown(&telemetry.server.logs))
}

#[track_caller]
fn check_logs(mesh: &str, objects: &[(&str, &str, &str)], client: &str, server: &str) {
    assert_eq!(logs(&telemetry(mesh, objects)), (client.to_owned(), server.to_owned()));
}

const ONE: &str = "accessLogging: [{providers: [{name: one}]}]";
const DEFAULT_ONE: &str = "defaultProviders: {accessLogging: [one]}";

#[test]
fn logs_without_objects_go_where_the_mesh_says() {
    check_logs("", &[], "mesh", "mesh");
    check_logs(DEFAULT_ONE, &[], "one", "one");
    check_logs("defaultProviders: {accessLogging: [zip, unknown, nobody]}", &[], "mesh", "mesh");
}

#[test]
fn the_nearest_object_that_names_providers_of_logs_decides() {
    let two = "accessLogging: [{providers: [{name: two}], filter: {expression: x}}]";
    check_logs("", &[("istio-system", "", ONE)], "one", "one");
    check_logs("", &[("istio-system", "", ONE), ("shop", "", two)], "two(x)", "two(x)");
    check_logs("", &[("istio-system", "", ONE), ("shop", "cart", two)], "two(x)", "two(x)");
    check_logs("", &[("istio-system", "", ONE), ("shop", "other", two)], "one", "one");
    check_logs("", &[("istio-system", "", ONE), ("bank", "", two)], "one", "one");
    // A selector in the root namespace matches only workloads of that namespace.
    check_logs("", &[("istio-system", "cart", ONE)], "mesh", "mesh");
    // Of two namespace-wide ones the older counts; of those for a workload all do.
    check_logs("", &[("shop", "", ONE), ("shop", "", two)], "one", "one");
    check_logs("", &[("shop", "cart", ONE), ("shop", "cart", two)], "two(x)", "two(x)");
}

#[test]
fn logs_are_switched_off_by_side() {
    let off = "accessLogging: [{disabled: true}]";
    let server_off = "accessLogging: [{match: {mode: SERVER}, disabled: true}]";
    check_logs("", &[("istio-system", "", ONE), ("shop", "", off)], "", "");
    check_logs("", &[("istio-system", "", ONE), ("shop", "", server_off)], "one", "");
    check_logs(DEFAULT_ONE, &[("shop", "", server_off)], "mesh", "");
    // Only one side has a provider at all: the other keeps the mesh's own log.
    check_logs(
        "",
        &[("shop", "", "accessLogging: [{match: {mode: CLIENT}, providers: [{name: two}]}]")],
        "two",
        "mesh",
    );
}

#[test]
fn providers_of_logs_are_found_in_any_spelling_and_sorted() {
    let several =
        "accessLogging: [{providers: [{name: TWO}, {name: known}, {name: one}, {name: nobody}, {name: unknown}]}]";
    check_logs("", &[("shop", "", several)], "known one two", "known one two");
}

fn tracing(telemetry: &WorkloadTelemetry) -> (&WorkloadTracing, &WorkloadTracing) {
    (&telemetry.client.tracing, &telemetry.server.tracing)
}

#[test]
fn traces_follow_the_mesh_until_something_names_a_provider() {
    assert_eq!(tracing(&telemetry("", &[])), (&WorkloadTracing::Mesh, &WorkloadTracing::Mesh));
    let nobody = telemetry("", &[("shop", "", "tracing: [{randomSamplingPercentage: 3}]")]);
    assert_eq!(tracing(&nobody), (&WorkloadTracing::Off, &WorkloadTracing::Off));
    assert_eq!(telemetry("defaultProviders: {tracing: [zip]}", &[]).client.tracing.provider(), Some("zip"));
    let unknown =
        telemetry("defaultProviders: {tracing: [zip]}", &[("shop", "", "tracing: [{providers: [{name: x}]}]")]);
    assert_eq!(unknown.client.tracing, WorkloadTracing::Off);
}

#[test]
fn traces_inherit_field_by_field() {
    let telemetry = telemetry(
        "defaultProviders: {tracing: [zip]}",
        &[
            ("istio-system", "", "tracing: [{randomSamplingPercentage: 3, customTags: {a: {literal: {value: x}}}}]"),
            (
                "shop",
                "",
                "tracing: [{match: {mode: SERVER}, providers: [{name: DOG}, {name: zip}], enableIstioTags: false}]",
            ),
            (
                "shop",
                "cart",
                "tracing: [{match: {mode: CLIENT}, disableSpanReporting: true}, {useRequestIdForTraceSampling: false, disableContextPropagation: true}]",
            ),
        ],
    );
    assert_eq!(telemetry.client.tracing, WorkloadTracing::Off);
    let WorkloadTracing::To(to) = &telemetry.server.tracing else { panic!("{telemetry:?}") };
    assert_eq!((&*to.provider, to.sampling), ("dog", Some(Percentage(3.0))));
    assert!(
        to.custom_tags.contains_key("a")
            && !to.istio_tags
            && !to.samples_by_request_id
            && to.disables_context_propagation
    );
    assert_eq!(telemetry.made_from.len(), 3);
}

#[test]
fn an_empty_map_of_tags_takes_the_inherited_ones_away() {
    let tags = |own: &str| {
        let root = "tracing: [{customTags: {a: {literal: {value: x}}}}]";
        let telemetry =
            telemetry("defaultProviders: {tracing: [zip]}", &[("istio-system", "", root), ("shop", "", own)]);
        let WorkloadTracing::To(to) = &telemetry.server.tracing else { panic!("{telemetry:?}") };
        to.custom_tags.len()
    };
    assert_eq!(tags("tracing: [{customTags: {}}]"), 0);
    assert_eq!(tags("tracing: [{randomSamplingPercentage: 3}]"), 1);
}

fn metrics(side: &Side) -> Vec<String> {
    let one = |(name, change): (&String, &MetricOverride)| {
        let tags = change.tags.iter().map(|(tag, value)| format!(" {tag}={}", value.as_deref().unwrap_or("-")));
        format!("{name}{}{}", if change.dropped { " dropped" } else { "" }, tags.collect::<String>())
    };
    side.metrics.iter().flat_map(|metrics| metrics.overrides.iter().map(one)).collect()
}

const PROMETHEUS: &str = "defaultProviders: {metrics: [prometheus]}";

#[test]
fn metrics_are_counted_for_providers_that_the_proxy_serves() {
    assert!(telemetry("", &[]).client.metrics.is_empty());
    assert_eq!(telemetry(PROMETHEUS, &[]).client.metrics.len(), 1);
    assert!(telemetry("defaultProviders: {metrics: [zip, stackdriver]}", &[]).client.metrics.is_empty());
    // An object without providers has no effect where the mesh has none.
    assert!(telemetry("", &[("shop", "", "metrics: [{reportingInterval: 5s}]")]).client.metrics.is_empty());
    // Naming others replaces the mesh's.
    assert!(telemetry(PROMETHEUS, &[("shop", "", "metrics: [{providers: [{name: zip}]}]")]).client.metrics.is_empty());
}

#[test]
fn overrides_of_metrics_are_laid_over_each_other() {
    let telemetry = telemetry(
        PROMETHEUS,
        &[
            (
                "istio-system",
                "",
                "metrics: [{reportingInterval: 5s, overrides: [{tagOverrides: {a: {value: x}, b: {value: y}}}]}]",
            ),
            (
                "shop",
                "",
                "metrics: [{overrides: [{match: {metric: REQUEST_COUNT, mode: SERVER}, disabled: true, tagOverrides: {a: {operation: REMOVE}}}, {match: {customMetric: mine}, tagOverrides: {c: {value: z}}}]}]",
            ),
            (
                "shop",
                "cart",
                "metrics: [{reportingInterval: 7s, overrides: [{match: {metric: REQUEST_COUNT}, disabled: false}]}]",
            ),
        ],
    );
    assert_eq!(telemetry.client.metrics[0].interval, Some(config::duration::Duration::from_secs(7)));
    let (client, server) = (metrics(&telemetry.client), metrics(&telemetry.server));
    assert_eq!((client.len(), server.len()), (11, 11));
    assert!(
        client.contains(&"REQUEST_COUNT a=x b=y".to_owned()) && server.contains(&"REQUEST_COUNT a=- b=y".to_owned())
    );
    assert_eq!(client[10], "mine c=z");
}

#[test]
fn all_metrics_of_a_side_are_off_until_one_is_touched_again() {
    let off = "metrics: [{overrides: [{match: {metric: ALL_METRICS, mode: CLIENT}, disabled: true}]}]";
    let everything_off = "metrics: [{overrides: [{disabled: true}]}]";
    let one_back = "metrics: [{overrides: [{match: {metric: REQUEST_SIZE}, disabled: false}]}]";
    let sides = |objects: &[(&str, &str, &str)]| {
        let telemetry = telemetry(PROMETHEUS, objects);
        (telemetry.client.metrics.len(), telemetry.server.metrics.len())
    };
    assert_eq!(sides(&[("shop", "", off)]), (0, 1));
    assert_eq!(sides(&[("istio-system", "", everything_off)]), (0, 0));
    assert_eq!(sides(&[("istio-system", "", everything_off), ("shop", "", one_back)]), (1, 1));
}
