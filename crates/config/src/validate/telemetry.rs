//! Telemetry: tracing, metrics, access logs.

use super::cel::expression_fault;
use super::field_context::FieldContext;
use super::target::check_target;
use crate::kinds::telemetry::{
    CustomTag, MetricMatch, MetricsOverrides, ProviderRef, TagOperation, TagOverride, Telemetry, Tracing,
};

pub(super) fn check(at: &FieldContext<'_>, telemetry: &Telemetry) {
    check_target(at, telemetry.selector.as_ref(), telemetry.target_ref.as_ref(), &telemetry.target_refs);
    at.each("metrics", &telemetry.metrics, |at, metrics| {
        check_providers(at, &metrics.providers);
        at.each("overrides", &metrics.overrides, check_override);
    });
    if telemetry.tracing.len() > 1 {
        at.field("tracing").warn("one entry is used; remove the others");
    }
    at.each("tracing", &telemetry.tracing, check_tracing);
    at.each("accessLogging", &telemetry.access_logging, |at, logging| {
        at.if_set("filter", logging.filter.as_ref(), |at, filter| {
            at.reject("expression", expression_fault(&filter.expression));
        });
        check_providers(at, &logging.providers);
    });
}

fn check_providers(at: &FieldContext<'_>, providers: &[ProviderRef]) {
    at.each("providers", providers, |at, provider| {
        at.reject_if("name", provider.name.is_empty(), "it is missing; name a provider of the mesh config");
    });
}

fn check_override(at: &FieldContext<'_>, change: &MetricsOverrides) {
    for (name, tag) in &change.tag_overrides {
        check_tag_override(&at.field("tagOverrides").field(name), name, tag);
    }
    if let Some(MetricMatch::Custom(name)) = change.selector.as_ref().and_then(|selector| selector.metric.as_ref()) {
        at.field("match").reject_if("customMetric", name.is_empty(), "it is missing; name the metric");
    }
}

fn check_tag_override(at: &FieldContext<'_>, name: &str, tag: &TagOverride) {
    if name.is_empty() {
        at.warn("a tag needs a name");
    }
    match tag.operation {
        TagOperation::Upsert => {
            at.reject_if("value", tag.value.is_empty(), "it is missing; say what the tag becomes, or use REMOVE");
        }
        TagOperation::Remove => {
            at.reject_if("value", !tag.value.is_empty(), "a tag that is removed has no value; remove it");
        }
    }
}

fn check_tracing(at: &FieldContext<'_>, tracing: &Tracing) {
    if tracing.providers.len() > 1 {
        at.field("providers").warn("one provider is used; remove the others");
    }
    check_providers(at, &tracing.providers);
    let sampling = tracing.random_sampling_percentage.unwrap_or_default();
    at.reject_if("randomSamplingPercentage", !(0.0..=100.0).contains(&sampling), "not a percentage; use 0 to 100");
    for (name, tag) in tracing.custom_tags.iter().flatten() {
        let at = at.field("customTags");
        at.reject_if(name, name.is_empty(), "a tag needs a name");
        let at = at.field(name);
        match tag {
            CustomTag::Literal(literal) => at.reject_if("literal", literal.value.is_empty(), "the value is missing"),
            CustomTag::Header(header) => {
                at.reject_if("header", header.name.is_empty(), "the name of the header is missing");
            }
            CustomTag::Environment(env) => {
                at.reject_if("environment", env.name.is_empty(), "the name of the variable is missing");
            }
            CustomTag::Unset | CustomTag::Formatter(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn tracing_metrics_and_logs() {
        let table = Table {
            kind: "Telemetry",
            valid: "{accessLogging: [{providers: [{name: envoy}], filter: {expression: 'response.code >= 400'}}]}",
        };
        check(
            &table,
            "{tracing: [{providers: [{name: a}, {}], randomSamplingPercentage: 101, customTags: {x: {literal: {}}}}, {}]}",
            &[
                "warning spec.tracing: one entry is used; remove the others",
                "warning spec.tracing[0].providers: one provider is used; remove the others",
                "error spec.tracing[0].providers[1].name: it is missing; name a provider of the mesh config",
                "error spec.tracing[0].randomSamplingPercentage: not a percentage; use 0 to 100",
                "error spec.tracing[0].customTags.x.literal: the value is missing",
            ],
        );
        check(
            &table,
            "{metrics: [{overrides: [{match: {customMetric: ''}, tagOverrides: {a: {}, b: {operation: REMOVE, value: c}}}]}]}",
            &[
                "error spec.metrics[0].overrides[0].tagOverrides.a.value: it is missing; say what the tag becomes, or use REMOVE",
                "error spec.metrics[0].overrides[0].tagOverrides.b.value: a tag that is removed has no value; remove it",
                "error spec.metrics[0].overrides[0].match.customMetric: it is missing; name the metric",
            ],
        );
        check(
            &table,
            "{accessLogging: [{filter: {expression: 'response.code >='}}]}",
            &[
                "error spec.accessLogging[0].filter.expression: not a CEL expression: it ends where a value should stand",
            ],
        );
    }
}
