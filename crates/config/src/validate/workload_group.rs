//! WorkloadGroup: the template, and the readiness probe.

use super::field_context::FieldContext;
use super::header::probe_name_fault;
use super::label::check_labels;
use super::quantity::count_fault;
use crate::kinds::workload_group::{HealthCheck, HttpHealthCheck, ReadinessProbe, WorkloadGroup};

pub(super) fn check(at: &FieldContext<'_>, group: &WorkloadGroup) {
    if group.template.is_none() {
        at.field("template").error("it is missing; write at least template: {}");
    }
    at.if_set("metadata", group.metadata.as_ref(), |at, metadata| {
        check_labels(&at.field("labels"), &metadata.labels);
    });
    at.if_set("probe", group.probe.as_ref(), check_probe);
}

fn check_probe(at: &FieldContext<'_>, probe: &ReadinessProbe) {
    at.reject("periodSeconds", count_fault(probe.period_seconds));
    at.reject("initialDelaySeconds", count_fault(probe.initial_delay_seconds));
    at.reject("timeoutSeconds", count_fault(probe.timeout_seconds));
    at.reject("successThreshold", count_fault(probe.success_threshold));
    at.reject("failureThreshold", count_fault(probe.failure_threshold));
    match &probe.method {
        Some(HealthCheck::HttpGet(http)) => check_http(&at.field("httpGet"), http),
        Some(HealthCheck::TcpSocket(tcp)) => at.field("tcpSocket").check_port("port", tcp.port),
        Some(HealthCheck::Exec(exec)) => {
            at.field("exec").reject_if(
                "command",
                exec.command.is_empty(),
                "it is missing; write the command and its arguments",
            );
        }
        Some(HealthCheck::Grpc(_)) => at.field("grpc").error("not supported; use httpGet, tcpSocket or exec"),
        None => at.error("nothing is probed; write httpGet, tcpSocket or exec, or remove the probe"),
    }
}

fn check_http(at: &FieldContext<'_>, http: &HttpHealthCheck) {
    at.check_port("port", http.port);
    at.reject_if("scheme", !matches!(http.scheme.as_str(), "" | "HTTP" | "HTTPS"), "not a scheme; use HTTP or HTTPS");
    at.each("httpHeaders", &http.http_headers, |at, header| at.reject("name", probe_name_fault(&header.name)));
}

#[cfg(test)]
mod tests {
    use crate::validate::example::{Table, check};

    #[test]
    fn templates_and_probes() {
        let table = Table { kind: "WorkloadGroup", valid: "{template: {}, probe: {httpGet: {port: 80}}}" };
        check(&table, "{}", &["error spec.template: it is missing; write at least template: {}"]);
        let probe =
            |probe: &str, expected: &[&str]| check(&table, &format!("{{template: {{}}, probe: {probe}}}"), expected);
        probe("{}", &["error spec.probe: nothing is probed; write httpGet, tcpSocket or exec, or remove the probe"]);
        probe("{grpc: {}}", &["error spec.probe.grpc: not supported; use httpGet, tcpSocket or exec"]);
        probe("{exec: {}}", &["error spec.probe.exec.command: it is missing; write the command and its arguments"]);
        probe(
            "{periodSeconds: -1, httpGet: {scheme: ftp, httpHeaders: [{name: a_b}]}}",
            &[
                "error spec.probe.periodSeconds: -1 is less than nothing; use 0 or more",
                "error spec.probe.httpGet.port: 0 is not a port; use 1 to 65535",
                "error spec.probe.httpGet.scheme: not a scheme; use HTTP or HTTPS",
                "error spec.probe.httpGet.httpHeaders[0].name: \"a_b\" is not the name of a header; use letters, digits and -",
            ],
        );
    }
}
