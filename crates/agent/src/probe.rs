//! Probes and lifecycle hooks of the application, as the injector took them from its containers: the agent asks in the kubelet's place. Under
//! STRICT mutual TLS the kubelet, which has no certificate, would be refused.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::unverified;

/// Connections from these addresses pass the redirection of inbound traffic by the sidecar's init container.
const LOCAL: (Ipv4Addr, Ipv6Addr) = (Ipv4Addr::new(127, 0, 0, 6), Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6));
/// The kubelet reads no more of a body.
const MAX_BODY: usize = 10 << 10;
const HEALTH: &str = "/grpc.health.v1.Health/Check";
/// A HealthCheckResponse that says SERVING.
const SERVING: [u8; 2] = [8, 1];

/// What the application is asked, by the path at the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes(BTreeMap<String, Probe>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Probe {
    port: u16,
    question: Question,
    /// `None`: as long as the kubelet waits.
    timeout: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Question {
    Http { path: String, tls: bool },
    Connect,
    Grpc { service: String },
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbesError {
    #[error("the probes of the application are not JSON: {0}")]
    Json(String),
    #[error("probe {path}: {why}")]
    Probe { path: String, why: &'static str },
}

impl Probes {
    /// The value of ISTIO_KUBE_APP_PROBERS, which injectors set.
    pub fn parse(text: &str) -> Result<Probes, ProbesError> {
        let all: BTreeMap<String, Value> = serde_json::from_str(text).map_err(|e| ProbesError::Json(e.to_string()))?;
        let parsed = all.into_iter().map(|(path, probe)| match Probe::parse(&probe) {
            Ok(probe) => Ok((path, probe)),
            Err(why) => Err(ProbesError::Probe { path, why }),
        });
        Ok(Probes(parsed.collect::<Result<_, _>>()?))
    }

    /// What the kubelet gets for its request. `None`: the injector left no probe with this path.
    pub(crate) async fn answer<B>(&self, pod: IpAddr, request: &Request<B>) -> Option<Response<Full<Bytes>>> {
        let probe = self.0.get(request.uri().path())?;
        let asked = probe.ask(SocketAddr::new(pod, probe.port), request.headers());
        let answer = match probe.timeout {
            Some(limit) => timeout(limit, asked).await.unwrap_or_else(|_| Err(format!("no answer within {limit:?}"))),
            None => asked.await,
        };
        Some(answer.unwrap_or_else(|why| failed(&why)))
    }
}

fn failed(why: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{why}\n"))));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

impl Probe {
    fn parse(probe: &Value) -> Result<Probe, &'static str> {
        let kinds = ["httpGet", "tcpSocket", "grpc"].map(|kind| probe.get(kind).filter(|action| !action.is_null()));
        let (action, question) = match kinds {
            [Some(action), None, None] => (action, Question::http(action)),
            [None, Some(action), None] => (action, Question::Connect),
            [None, None, Some(action)] => {
                (action, Question::Grpc { service: action["service"].as_str().unwrap_or_default().to_owned() })
            }
            _ => return Err("it must have one of httpGet, tcpSocket and grpc"),
        };
        let port = action["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        let seconds = probe["timeoutSeconds"].as_u64().filter(|seconds| *seconds > 0);
        Ok(Probe {
            port: port.ok_or("its port is no number of a port")?,
            question,
            timeout: seconds.map(Duration::from_secs),
        })
    }

    async fn ask(&self, to: SocketAddr, headers: &HeaderMap) -> Result<Response<Full<Bytes>>, String> {
        let stream = connect(to).await.map_err(|error| format!("connect to {to}: {error}"))?;
        match &self.question {
            Question::Connect => Ok(Response::default()),
            Question::Http { path, tls: false } => get(stream, to, path, headers).await,
            Question::Http { path, tls: true } => get(unverified::tls(stream, to.ip()).await?, to, path, headers).await,
            Question::Grpc { service } => check(stream, to, service).await,
        }
    }
}

impl Question {
    fn http(action: &Value) -> Question {
        let path = action["path"].as_str().unwrap_or_default();
        Question::Http { path: format!("/{}", path.trim_start_matches('/')), tls: action["scheme"] == "HTTPS" }
    }
}

async fn connect(to: SocketAddr) -> std::io::Result<TcpStream> {
    let (socket, from) = match to {
        SocketAddr::V4(_) => (TcpSocket::new_v4()?, IpAddr::from(LOCAL.0)),
        SocketAddr::V6(_) => (TcpSocket::new_v6()?, IpAddr::from(LOCAL.1)),
    };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

/// Runs the connection as long as the exchange needs it.
async fn with<T>(
    connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
    exchange: impl Future<Output = T>,
) -> T {
    let driver = tokio::spawn(connection);
    let done = exchange.await;
    driver.abort();
    done
}

/// Status and the start of the body are the application's. A redirection is success, as for the kubelet, and is not followed.
async fn get<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    to: SocketAddr,
    path: &str,
    headers: &HeaderMap,
) -> Result<Response<Full<Bytes>>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("GET {path} of {to}: {error}");
    let mut request = Request::get(path).body(Full::new(Bytes::new())).map_err(|e| failed(&e))?;
    *request.headers_mut() = headers.clone();
    request.headers_mut().remove(CONNECTION);
    request.headers_mut().insert(HOST, host(headers, to));
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    with(connection, async {
        let response = sender.send_request(request).await.map_err(|e| failed(&e))?;
        let status = if response.status().is_redirection() { StatusCode::OK } else { response.status() };
        let mut answer = Response::new(Full::new(start_of(response.into_body()).await));
        *answer.status_mut() = status;
        Ok(answer)
    })
    .await
}

/// That of the kubelet's request, with the port of the application: the kubelet named that of the agent.
fn host(headers: &HeaderMap, to: SocketAddr) -> HeaderValue {
    let asked = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let renamed = match asked.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => format!("{name}:{}", to.port()),
        _ if asked.is_empty() => to.to_string(),
        _ => asked.to_owned(),
    };
    HeaderValue::try_from(renamed).unwrap_or(HeaderValue::from_static("localhost"))
}

async fn start_of(mut body: Incoming) -> Bytes {
    let mut read = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        read.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        if read.len() >= MAX_BODY {
            read.truncate(MAX_BODY);
            break;
        }
    }
    read.freeze()
}

async fn check(stream: TcpStream, to: SocketAddr, service: &str) -> Result<Response<Full<Bytes>>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("health of {service:?} at {to}: {error}");
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|e| failed(&e))?;
    let request = Request::post(format!("http://{to}{HEALTH}"))
        .header(CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .body(Full::new(health_request(service)))
        .map_err(|e| failed(&e))?;
    with(connection, async {
        let (head, body) = sender.send_request(request).await.map_err(|e| failed(&e))?.into_parts();
        let whole = Limited::new(body, MAX_BODY).collect().await.map_err(|e| failed(&e))?;
        let status = whole.trailers().unwrap_or(&head.headers).get("grpc-status").cloned();
        let message = whole.to_bytes();
        match status.as_ref().map(HeaderValue::as_bytes) {
            Some(b"0") if message.get(5..) == Some(&SERVING) => Ok(Response::default()),
            Some(b"0") => Err(failed(&"not serving")),
            other => Err(failed(&format!("gRPC status {:?}", other.map(String::from_utf8_lossy)))),
        }
    })
    .await
}

fn health_request(service: &str) -> Bytes {
    let mut message = BytesMut::new();
    if !service.is_empty() {
        prost::encoding::string::encode(1, &service.to_owned(), &mut message);
    }
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(&message);
    framed.freeze()
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What an application got, and what the kubelet gets when it gives this answer.
    async fn asked(probe: &str, path: &str, answer: &'static str) -> (String, StatusCode, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let application = tokio::spawn(async move {
            let (mut stream, from) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 4096];
            let read = stream.read(&mut bytes).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            format!("{}: {}", from.ip(), String::from_utf8_lossy(&bytes[..read]))
        });
        let probes = Probes::parse(&probe.replace("PORT", &port.to_string())).unwrap();
        let request = Request::get(path).header(HOST, "10.0.0.1:15020").header("x-team", "a").body(()).unwrap();
        let response = probes.answer(Ipv4Addr::LOCALHOST.into(), &request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (application.await.unwrap(), head.status, String::from_utf8_lossy(&body).into_owned())
    }

    const READY: &str = "/app-health/app/readyz";

    #[tokio::test]
    async fn the_application_is_asked_past_the_redirection_and_answers_itself() {
        let probe =
            r#"{"/app-health/app/readyz": {"httpGet": {"path": "ready?deep=1", "port": PORT}, "timeoutSeconds": 5}}"#;
        let (request, status, body) = asked(probe, READY, "HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nbusy").await;
        assert!(request.starts_with("127.0.0.6: GET /ready?deep=1 HTTP/1.1\r\n"), "{request}");
        assert!(
            request.contains("x-team: a") && request.contains("host: 10.0.0.1:") && !request.contains("15020"),
            "{request}"
        );
        assert_eq!((status, body.as_str()), (StatusCode::SERVICE_UNAVAILABLE, "busy"));
        let moved = "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(asked(probe, READY, moved).await.1, StatusCode::OK);
    }

    #[tokio::test]
    async fn a_port_that_is_closed_or_silent_fails() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for (kind, port, expected) in [
            ("tcpSocket", closed, StatusCode::INTERNAL_SERVER_ERROR),
            ("tcpSocket", silent.local_addr().unwrap().port(), StatusCode::OK),
            ("httpGet", silent.local_addr().unwrap().port(), StatusCode::INTERNAL_SERVER_ERROR),
            ("grpc", silent.local_addr().unwrap().port(), StatusCode::INTERNAL_SERVER_ERROR),
        ] {
            let text = format!(r#"{{"{READY}": {{"{kind}": {{"port": {port}}}, "timeoutSeconds": 1}}}}"#);
            let request = Request::get(READY).body(()).unwrap();
            let answer = Probes::parse(&text).unwrap().answer(Ipv4Addr::LOCALHOST.into(), &request).await.unwrap();
            assert_eq!(answer.status(), expected, "{kind}");
        }
    }

    #[tokio::test]
    async fn a_health_service_is_asked_by_its_name() {
        for (answer, expected) in
            [(&[0, 0, 0, 0, 2, 8, 1], StatusCode::OK), (&[0, 0, 0, 0, 2, 8, 2], StatusCode::INTERNAL_SERVER_ERROR)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                    assert_eq!(request.uri().path(), HEALTH);
                    let asked = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(&asked[..], b"\0\0\0\0\x06\x0a\x04cart");
                    let body = Full::new(Bytes::from_static(answer));
                    let trailers =
                        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
                    hyper::Result::Ok(Response::new(body.with_trailers(async move { Some(Ok(trailers)) })))
                });
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await
            });
            let text = format!(r#"{{"{READY}": {{"grpc": {{"port": {port}, "service": "cart"}}}}}}"#);
            let request = Request::get(READY).body(()).unwrap();
            let got = Probes::parse(&text).unwrap().answer(Ipv4Addr::LOCALHOST.into(), &request).await.unwrap();
            assert_eq!(got.status(), expected);
        }
    }

    #[test]
    fn probes_that_cannot_be_asked_are_named() {
        let why = |text: &str| Probes::parse(text).unwrap_err().to_string();
        assert!(why("[]").contains("not JSON"));
        assert_eq!(why(r#"{"/a": {"httpGet": {"port": "http"}}}"#), "probe /a: its port is no number of a port");
        let both = r#"{"/a": {"httpGet": {"port": 1}, "tcpSocket": {"port": 1}}}"#;
        assert_eq!(why(both), "probe /a: it must have one of httpGet, tcpSocket and grpc");
    }
}
