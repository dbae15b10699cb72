//! `meltemi explain request`: the path of one request, evaluated over the Envoy resources of the proxies on it.

use anyhow::{Context, Result, bail};
use explain::{ExplainedRequest, Explanation, HopSide, Payload, RequestVerdict, Token};
use serde_json::{Map, Value};

use super::request_mesh::{FolderProxies, RequestProxies, ServerProxies};
use crate::{CommandOutcome, print};
use settings::args::{Env, ExplainRequestArgs, Listing};

pub(super) fn run(args: ExplainRequestArgs, env: &Env) -> Result<CommandOutcome> {
    let request = parse_request(&args)?;
    let (output, from, gateway) = (args.output, args.from, args.gateway);
    let hint = args.source.config.is_some() && !args.source.mesh.derive_endpoints;
    let proxies = if args.source.config.is_some() {
        RequestProxies::Folder(Box::new(FolderProxies::new(args.source, env)?))
    } else {
        RequestProxies::Server(ServerProxies::new(args.source)?)
    };
    let explanation = explained(&proxies, &request, &from, gateway.as_deref())?;
    match output {
        Listing::Json => print(&format!("{}\n", serde_json::to_string_pretty(&explanation)?)),
        Listing::Text => print(&explanation.text()),
    }
    if hint && explanation.answer.contains("no healthy endpoint") {
        eprintln!("note: without --derive-endpoints, a Service has the endpoints of its EndpointSlices only");
    }
    Ok(if explanation.verdict == RequestVerdict::Answered { CommandOutcome::Done } else { CommandOutcome::Found })
}

fn explained(
    proxies: &RequestProxies,
    request: &ExplainedRequest,
    from: &str,
    gateway: Option<&str>,
) -> Result<Explanation> {
    let (name, side) = match (from, gateway) {
        ("outside", Some(gateway)) => (gateway, HopSide::Gateway),
        ("outside", None) => bail!("--from outside needs --gateway"),
        (_, Some(_)) => bail!("--gateway goes with --from outside; from a pod, the way to a gateway is found by --to"),
        (pod, None) => (pod, HopSide::Client),
    };
    let mut request = request.clone();
    let client = proxies.named(name, side)?;
    if side == HopSide::Gateway {
        request.port = proxies.gateway_port(name, request.port);
    }
    let mut failed = None;
    let explanation = explain::explain(&request, &client, side, &mut |ip| {
        proxies.at(ip).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        })
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(explanation),
    }
}

fn parse_request(args: &ExplainRequestArgs) -> Result<ExplainedRequest> {
    let server_name = args.sni.clone().or_else(|| args.tls.then(|| host_and_port(&args.to, 443).0.to_owned()));
    let (host, port) = host_and_port(&args.to, if server_name.is_some() { 443 } else { 80 });
    let port = port.with_context(|| format!("--to {:?}: its port is no number; write it as HOST:PORT", args.to))?;
    if !args.path.starts_with('/') {
        bail!("--path {:?} is not a path; it starts with a slash", args.path);
    }
    let payload = if args.tcp {
        Payload::Tcp
    } else {
        Payload::Http {
            method: args.method.to_ascii_uppercase(),
            path: args.path.clone(),
            headers: args.headers.clone(),
        }
    };
    Ok(ExplainedRequest {
        host: host.to_owned(),
        port,
        address: args.to_ip.or_else(|| host.parse().ok()),
        payload,
        token: token(args),
        source: args.source_ip,
        server_name,
        certificate: None,
    })
}

/// The port is `None` if it is no number.
fn host_and_port(to: &str, default: u16) -> (&str, Option<u16>) {
    match to.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host.trim_matches(['[', ']']), port.parse().ok())
        }
        _ => (to.trim_matches(['[', ']']), Some(default)),
    }
}

fn token(args: &ExplainRequestArgs) -> Token {
    if args.no_jwt {
        return Token::Absent;
    }
    if args.jwt_claims.is_empty() {
        return Token::Unknown;
    }
    let mut claims = Map::new();
    for (name, text) in &args.jwt_claims {
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text.as_str()));
        // A claim that is given twice is a list.
        match claims.get_mut(name) {
            Some(Value::Array(items)) => items.push(value),
            Some(first) => *first = Value::Array(vec![first.take(), value]),
            None => drop(claims.insert(name.clone(), value)),
        }
    }
    Token::Valid(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_with_and_without_ports() {
        assert_eq!(host_and_port("cart", 80), ("cart", Some(80)));
        assert_eq!(host_and_port("cart.shop:8080", 80), ("cart.shop", Some(8080)));
        assert_eq!(host_and_port("[::1]:8080", 80), ("::1", Some(8080)));
        assert_eq!(host_and_port("2001:db8::1", 80), ("2001:db8::1", Some(80)));
        assert_eq!(host_and_port("cart:http", 80).1, None);
    }
}
