//! Annotations of pods that injection checks, with istiod's error texts: users and their tools know them.

use config::mesh::ProxyConfig;

use crate::pod::Pod;
use crate::proxy_config;
use crate::quantity::Quantity;

type Check = fn(&str) -> Result<(), String>;

const CHECKS: &[(&str, Check)] = &[
    ("sidecar.istio.io/interceptionMode", interception_mode),
    ("status.sidecar.istio.io/port", |value| {
        port(value).map_err(|what| format!("excludeInboundPorts invalid: {what}"))
    }),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", |value| unsigned(value, 32)),
    ("readiness.status.sidecar.istio.io/periodSeconds", |value| unsigned(value, 32)),
    ("readiness.status.sidecar.istio.io/failureThreshold", |value| unsigned(value, 32)),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", |value| {
        all_or(value, |value| ranges("includeIPRanges", value))
    }),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", |value| ranges("excludeIPRanges", value)),
    ("traffic.sidecar.istio.io/includeInboundPorts", |value| {
        all_or(value, |value| ports("includeInboundPorts", value))
    }),
    ("traffic.sidecar.istio.io/excludeInboundPorts", |value| ports("excludeInboundPorts", value)),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", |value| ports("excludeOutboundPorts", value)),
    ("traffic.sidecar.istio.io/excludeInterfaces", interfaces),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", interfaces),
    ("istio.io/reroute-virtual-interfaces", interfaces),
    ("prometheus.istio.io/merge-metrics", |value| boolean(value).map(|_| ())),
    (proxy_config::ANNOTATION, proxy_config),
    ("sidecar.istio.io/proxyCPU", quantity),
    ("sidecar.istio.io/proxyMemory", quantity),
    ("sidecar.istio.io/proxyCPULimit", quantity),
    ("sidecar.istio.io/proxyMemoryLimit", quantity),
];

/// `Err`: one line for each annotation that is wrong.
pub(crate) fn check_annotations(pod: &Pod) -> Result<(), String> {
    let faults: Vec<String> = pod
        .annotations()
        .filter_map(|(name, value)| {
            let (_, check) = CHECKS.iter().find(|(known, _)| *known == name)?;
            let why = check(value).err()?;
            Some(format!("\t* invalid value '{value}' for annotation '{name}': {why}\n"))
        })
        .collect();
    match faults.len() {
        0 => Ok(()),
        1 => Err(format!("1 error occurred:\n{}\n", faults.concat())),
        count => Err(format!("{count} errors occurred:\n{}\n", faults.concat())),
    }
}

/// Go's `strconv.ParseBool`.
pub(crate) fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        other => Err(format!("strconv.ParseBool: parsing {other:?}: invalid syntax")),
    }
}

fn interception_mode(value: &str) -> Result<(), String> {
    match value {
        "REDIRECT" | "TPROXY" | "NONE" => Ok(()),
        other => Err(format!("interceptionMode invalid, use REDIRECT,TPROXY,NONE: {other}")),
    }
}

fn all_or(value: &str, check: Check) -> Result<(), String> {
    if value == "*" { Ok(()) } else { check(value) }
}

/// Go's `strconv.ParseUint`.
fn unsigned(value: &str, bits: u32) -> Result<(), String> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let what = match value.parse::<u64>() {
        Ok(number) if digits && number >> bits == 0 => return Ok(()),
        _ if digits => "value out of range",
        _ => "invalid syntax",
    };
    Err(format!("strconv.ParseUint: parsing {value:?}: {what}"))
}

fn port(value: &str) -> Result<(), String> {
    unsigned(value.trim(), 16).map_err(|what| format!("failed parsing port '{value}': {what}"))
}

fn ports(name: &str, value: &str) -> Result<(), String> {
    let value = value.trim();
    let mut parts = value.split(',').filter(|_| !value.is_empty());
    parts
        .try_for_each(|part| port(part).map_err(|what| format!("{name} invalid: failed parsing port '{part}': {what}")))
}

fn ranges(name: &str, value: &str) -> Result<(), String> {
    let mut parts = value.split(',').filter(|_| !value.is_empty());
    parts.try_for_each(|part| {
        prefix(part).map_err(|what| format!("{name} invalid: failed parsing cidr '{part}': {what}"))
    })
}

/// Go's `netip.ParsePrefix`.
fn prefix(text: &str) -> Result<(), String> {
    let fail = |what: String| Err(format!("netip.ParsePrefix({text:?}): {what}"));
    let Some((address, bits)) = text.rsplit_once('/') else { return fail("no '/'".into()) };
    if address.contains('%') {
        return fail("IPv6 zones cannot be present in a prefix".into());
    }
    let Ok(address) = address.parse::<std::net::IpAddr>() else {
        return fail(format!("ParseAddr({address:?}): unable to parse IP"));
    };
    let canonical =
        !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let most = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u32>() {
        _ if !canonical => fail(format!("bad bits after slash: {bits:?}")),
        Ok(bits) if bits <= most => Ok(()),
        _ => fail("prefix length out of range".into()),
    }
}

fn interfaces(value: &str) -> Result<(), String> {
    let mut names = value.split(',').map(str::trim).filter(|_| !value.is_empty());
    names.try_for_each(|name| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match name.len() {
            0 => Err("empty interface name".to_owned()),
            1..=15 if name.chars().all(allowed) && name.starts_with(|c: char| c.is_ascii_alphabetic()) => Ok(()),
            1..=15 => Err(format!("interface name {name:?} contains invalid characters")),
            _ => Err(format!("interface name {name:?} too long (max 15 chars)")),
        }
    })
}

fn quantity(value: &str) -> Result<(), String> {
    if value.chars().any(char::is_control) {
        return Err("value contains control characters".into());
    }
    value.parse::<Quantity>().map(|_| ()).map_err(|error| error.to_string())
}

fn proxy_config(value: &str) -> Result<(), String> {
    let written = ProxyConfig::of_annotation(value);
    let faults = written.map_err(|what| format!("failed to convert to apply proxy config: {what}"))?.faults();
    match faults.len() {
        0 => Ok(()),
        1 => Err(format!("1 error occurred:\n\t* {}\n\n", faults[0])),
        count => Err(format!("{count} errors occurred:\n\t* {}\n\n", faults.join("\n\t* "))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, value: &str, why: &str) {
        let pod = Pod::typed(json!({ "metadata": { "annotations": { name: value } } })).unwrap();
        let expected = if why.is_empty() {
            Ok(())
        } else {
            Err(format!("1 error occurred:\n\t* invalid value '{value}' for annotation '{name}': {why}\n\n"))
        };
        assert_eq!(check_annotations(&pod), expected);
    }

    #[test]
    fn values_that_fit_pass() {
        for (name, value) in [
            ("traffic.sidecar.istio.io/includeOutboundIPRanges", "*"),
            ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.0.0.0/8,fd00::/8"),
            ("traffic.sidecar.istio.io/excludeInboundPorts", " 80, 81 "),
            ("traffic.sidecar.istio.io/excludeInboundPorts", ""),
            ("traffic.sidecar.istio.io/excludeInterfaces", "eth0, net1"),
            ("prometheus.istio.io/merge-metrics", "T"),
            ("sidecar.istio.io/proxyMemory", "1Gi"),
            ("proxy.istio.io/config", "concurrency: 2\nnoSuchField: 1"),
            ("example.com/other", "\n"),
        ] {
            check(name, value, "");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_named_with_the_reason() {
        check(
            "traffic.sidecar.istio.io/excludeOutboundIPRanges",
            "10.0.0.0/33",
            "excludeIPRanges invalid: failed parsing cidr '10.0.0.0/33': netip.ParsePrefix(\"10.0.0.0/33\"): prefix length out of range",
        );
        check("traffic.sidecar.istio.io/excludeInterfaces", "a,,b", "empty interface name");
        check(
            "traffic.sidecar.istio.io/excludeInterfaces",
            "averyverylongname",
            "interface name \"averyverylongname\" too long (max 15 chars)",
        );
        check("sidecar.istio.io/proxyCPU", "1\n", "value contains control characters");
        check(
            "readiness.status.sidecar.istio.io/periodSeconds",
            "4294967296",
            "strconv.ParseUint: parsing \"4294967296\": value out of range",
        );
    }
}
