//! A live Envoy with extensions: a script and a limit that EnvoyFilters put in, and a WebAssembly module that comes over ECDS and takes
//! another configuration without a new listener. No redirection: the sidecar's listeners bind real ports, so that nothing but an Envoy is needed.

mod module;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use testkit::envoy::{Bootstrap, Envoy, ServerAddress};
use testkit::http_client::{self, HttpRequest, HttpResponse};
use testkit::parity::CaseProxy;
use testkit::server::MeltemiServer;
use testkit::wait::eventually;
use testkit::{environment, port, say, skip};
use tokio::net::TcpListener;

#[test]
fn scripts_limits_and_modules_act_on_requests() {
    let Some(envoy) = environment::envoy() else {
        return skip("extensions in a live Envoy: no Envoy (`cargo xtask setup`, or set MELTEMI_ENVOY)");
    };
    run(&envoy).unwrap_or_else(|e| panic!("{e:#}"));
}

#[tokio::main]
async fn run(envoy: &Path) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let objects = folder.path().join("objects");
    std::fs::create_dir(&objects)?;
    let module = folder.path().join("greeting.wasm");
    std::fs::write(&module, module::greeting())?;
    let (app, port) = (application().await?, port::reserve()?);
    std::fs::write(objects.join("mesh.yaml"), mesh(app, port))?;
    std::fs::write(objects.join("plugin.yaml"), plugin(&module, "hello"))?;
    let mut server = MeltemiServer::start(&objects)?;
    let proxy = CaseProxy::new(&json!({
        "name": "client-1", "namespace": "shop", "ip": "127.0.0.1", "labels": { "app": "client" },
        "metadata": { "INTERCEPTION_MODE": "NONE" },
    }))?;
    let bootstrap =
        Bootstrap { proxy: &proxy, ads: ServerAddress::Tcp(server.address), sds: folder.path().join("sds") };
    let mut proxy = Envoy::start(envoy, &[], &bootstrap)?;
    proxy.wait_live().await.with_context(|| server.log())?;

    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let open = HttpRequest::new(at, "open.example", "/");
    let answer = http_client::send_one(&open).await.with_context(|| proxy.log())?;
    ensure!(
        header(&answer, "x-script") == Some("200"),
        "the script did not see the answer: {answer:?}\n{}",
        proxy.log()
    );
    ensure!(header(&answer, "x-wasm") == Some(r#"{"greeting":"hello"}"#), "the module: {answer:?}\n{}", proxy.log());
    say(
        "extend: a script that an EnvoyFilter inserted changes answers; a module from ECDS answers with its configuration",
    );

    let answers = http_client::send_many(&HttpRequest::new(at, "limited.example", "/"), 6, 1).await?;
    let served = answers.iter().filter(|answer| answer.status == StatusCode::OK).count();
    let limited = answers.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).count();
    ensure!((served, limited) == (2, 4), "of 6 requests {served} were served and {limited} limited");
    let free = http_client::send_many(&open, 6, 1).await?;
    ensure!(free.iter().all(|answer| answer.status == StatusCode::OK), "the limit is merged into one host only");
    say("extend: a limit that is merged into one virtual host lets 2 of 6 requests through");

    let before = listener_updates(&proxy).await?;
    std::fs::write(objects.join("plugin.yaml"), plugin(&module, "bye"))?;
    let changed = eventually("the other configuration of the plugin", async || {
        Ok(header(&http_client::send_one(&open).await?, "x-wasm") == Some(r#"{"greeting":"bye"}"#))
    });
    changed.await.with_context(|| format!("{}\n{}", server.log(), proxy.log()))?;
    ensure!(listener_updates(&proxy).await? == before, "a listener was sent for a configuration that it only names");
    say("extend: another pluginConfig took effect without an update of a listener");
    Ok(())
}

async fn listener_updates(proxy: &Envoy) -> Result<Vec<(String, u64)>> {
    proxy.stats(r"^listener_manager\.(lds\.update_(success|attempt|rejected)|listener_(added|modified))$").await
}

fn header<'a>(answer: &'a HttpResponse, name: &str) -> Option<&'a str> {
    answer.headers.get(name)?.to_str().ok()
}

/// Two hosts of one application; a script in every outbound chain, and a limit on one of the hosts.
fn mesh(app: u16, port: u16) -> String {
    let entry = |name: &str| {
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": { "name": name, "namespace": "shop" },
            "spec": {
                "hosts": [format!("{name}.example")], "resolution": "STATIC", "endpoints": [{ "address": "127.0.0.1" }],
                "ports": [{ "number": port, "targetPort": app, "name": "http", "protocol": "HTTP" }],
            },
        })
    };
    let router = json!({
        "context": "SIDECAR_OUTBOUND",
        "listener": { "filterChain": { "filter": {
            "name": "envoy.filters.network.http_connection_manager",
            "subFilter": { "name": "envoy.filters.http.router" },
        } } },
    });
    let script =
        "function envoy_on_response(handle) handle:headers():add('x-script', handle:headers():get(':status')) end";
    let insert = |value: serde_json::Value| json!({ "applyTo": "HTTP_FILTER", "match": router, "patch": { "operation": "INSERT_BEFORE", "value": value } });
    let limit = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "limited",
        "token_bucket": { "max_tokens": 2, "tokens_per_fill": 2, "fill_interval": "3600s" },
        "filter_enabled": { "default_value": { "numerator": 100 } },
        "filter_enforced": { "default_value": { "numerator": 100 } },
    });
    let filter = json!({
        "apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter",
        "metadata": { "name": "script-and-limit", "namespace": "shop" },
        "spec": { "configPatches": [
            insert(json!({ "name": "script", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                "default_source_code": { "inline_string": script },
            } })),
            insert(json!({ "name": "limit", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
                "stat_prefix": "open",
            } })),
            { "applyTo": "VIRTUAL_HOST",
              "match": { "context": "SIDECAR_OUTBOUND", "routeConfiguration": { "vhost": { "domainName": "limited.example" } } },
              "patch": { "operation": "MERGE", "value": { "typed_per_filter_config": { "limit": limit } } } },
        ] },
    });
    [entry("open"), entry("limited"), filter].map(|object| object.to_string()).join("\n---\n")
}

fn plugin(module: &Path, greeting: &str) -> String {
    let plugin = json!({
        "apiVersion": "extensions.istio.io/v1alpha1", "kind": "WasmPlugin",
        "metadata": { "name": "greeting", "namespace": "shop" },
        "spec": {
            "url": format!("file://{}", module.display()), "match": [{ "mode": "CLIENT" }],
            "pluginConfig": { "greeting": greeting },
        },
    });
    plugin.to_string()
}

/// Finds everything.
async fn application() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((io, _)) = listener.accept().await {
            let answer = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), answer));
        }
    });
    Ok(port)
}
