//! Access log formats: text or JSON with Envoy's command operators.

use config::kinds::json_object::JsonObject;
use wire::any;
use wire::envoy::config::core::v3::{
    DataSource, JsonFormatOptions, SubstitutionFormatString, TypedExtensionConfig, data_source::Specifier,
    substitution_format_string::Format,
};
use wire::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use wire::google::protobuf::Struct;

use crate::proto;

/// istiod's default text format.
pub(super) const TEXT: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% %RESPONSE_FLAGS% ",
    "%RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% ",
    "%BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" ",
    "\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% ",
    "%DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%\n",
);

/// istiod's default JSON format.
const JSON: [(&str, &str); 24] = [
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("route_name", "%ROUTE_NAME%"),
    ("start_time", "%START_TIME%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

/// Every line ends with a newline; an empty text means istiod's default.
pub(super) fn text(written: &str) -> SubstitutionFormatString {
    let mut line = if written.is_empty() { TEXT.to_owned() } else { written.to_owned() };
    if !line.ends_with('\n') {
        line.push('\n');
    }
    SubstitutionFormatString {
        formatters: formatters([line.as_str()].into_iter()),
        format: Some(Format::TextFormatSource(DataSource {
            specifier: Some(Specifier::InlineString(line)),
            ..DataSource::default()
        })),
        ..SubstitutionFormatString::default()
    }
}

/// An empty object means istiod's default.
pub(super) fn json(written: &JsonObject) -> SubstitutionFormatString {
    of_json(if written.0.is_empty() { default_object() } else { proto::json_object(&written.0) })
}

/// JSON text; anything but an object means istiod's default.
pub(super) fn json_text(written: &str) -> SubstitutionFormatString {
    let parsed = serde_json::from_str::<serde_json::Map<_, _>>(written);
    of_json(parsed.map_or_else(|_| default_object(), |object| proto::json_object(&object)))
}

/// Operators that need a formatter extension. As in istiod nested objects are not searched.
pub(super) fn formatters<'a>(mut texts: impl Iterator<Item = &'a str>) -> Vec<TypedExtensionConfig> {
    let used = texts.any(|text| text.contains("%REQ_WITHOUT_QUERY"));
    let formatter = used.then(|| TypedExtensionConfig {
        name: "envoy.formatter.req_without_query".into(),
        typed_config: Some(any::pack(&ReqWithoutQuery {})),
    });
    formatter.into_iter().collect()
}

fn of_json(object: Struct) -> SubstitutionFormatString {
    SubstitutionFormatString {
        formatters: formatters(object.fields.values().filter_map(proto::as_text)),
        format: Some(Format::JsonFormat(object)),
        json_format_options: Some(JsonFormatOptions::default()),
        ..SubstitutionFormatString::default()
    }
}

fn default_object() -> Struct {
    proto::proto_struct(JSON.map(|(key, value)| (key, proto::text(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(format: &SubstitutionFormatString) -> usize {
        let Some(Format::JsonFormat(object)) = &format.format else { panic!("{format:?}") };
        object.fields.len()
    }

    #[test]
    fn json_that_is_not_an_object_means_the_default() {
        assert_eq!(members(&json_text("{\"a\": 1}")), 1);
        for bad in ["", "nonsense", "[1]", "{"] {
            assert_eq!(members(&json_text(bad)), JSON.len(), "{bad}");
        }
        assert_eq!(members(&json_text("{}")), 0);
        assert_eq!(members(&json(&JsonObject::default())), JSON.len());
    }

    #[test]
    fn req_without_query_needs_an_extension() {
        assert_eq!(text("%REQ_WITHOUT_QUERY(:PATH)%").formatters.len(), 1);
        assert!(text("").formatters.is_empty());
        assert_eq!(json_text("{\"a\": \"%REQ_WITHOUT_QUERY(:PATH)%\"}").formatters.len(), 1);
        assert!(json_text("{\"a\": {\"b\": \"%REQ_WITHOUT_QUERY(:PATH)%\"}}").formatters.is_empty());
    }
}
