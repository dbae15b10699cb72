//! A small HTTP/1.1 client for tests that send many requests: a few connections, each with one request after the other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::wait::DEADLINE;

/// What to ask for; cheap to construct for every request.
#[derive(Clone)]
pub struct HttpRequest {
    pub at: SocketAddr,
    pub host: String,
    pub path: String,
    pub method: hyper::Method,
    pub headers: Vec<(&'static str, String)>,
}

impl HttpRequest {
    pub fn new(at: SocketAddr, host: &str, path: &str) -> HttpRequest {
        HttpRequest {
            at,
            host: host.to_owned(),
            path: path.to_owned(),
            method: hyper::Method::GET,
            headers: Vec::new(),
        }
    }

    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> HttpRequest {
        self.headers.push((name, value.into()));
        self
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>> {
        let mut request = Request::builder().method(&self.method).uri(&self.path).header("host", &self.host);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        Ok(request.body(Empty::new())?)
    }
}

#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
    pub took: Duration,
}

/// One request on a connection of its own.
pub async fn send_one(ask: &HttpRequest) -> Result<HttpResponse> {
    send(&mut connect(ask.at).await?, ask).await
}

/// `count` requests on `connections` connections; answers of the first connection come first.
pub async fn send_many(ask: &HttpRequest, count: usize, connections: usize) -> Result<Vec<HttpResponse>> {
    let shares = (0..connections).map(|index| count / connections + usize::from(index < count % connections));
    let tasks: Vec<_> = shares.map(|share| tokio::spawn(send_repeatedly(ask.clone(), share))).collect();
    let mut answers = Vec::with_capacity(count);
    for task in tasks {
        answers.extend(task.await??);
    }
    Ok(answers)
}

async fn send_repeatedly(ask: HttpRequest, count: usize) -> Result<Vec<HttpResponse>> {
    let mut connection = connect(ask.at).await?;
    let mut answers = Vec::with_capacity(count);
    for _ in 0..count {
        if connection.ready().await.is_err() {
            connection = connect(ask.at).await?;
        }
        answers.push(send(&mut connection, &ask).await?);
    }
    Ok(answers)
}

async fn connect(at: SocketAddr) -> Result<SendRequest<Empty<Bytes>>> {
    let stream = TcpStream::connect(at).await.with_context(|| format!("no connection to {at}"))?;
    stream.set_nodelay(true)?;
    let (connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(driver);
    Ok(connection)
}

async fn send(connection: &mut SendRequest<Empty<Bytes>>, ask: &HttpRequest) -> Result<HttpResponse> {
    let began = Instant::now();
    let exchange = async {
        let response = connection.send_request(ask.request()?).await?;
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await?.to_bytes().into())?;
        Ok(HttpResponse { status: head.status, headers: head.headers, body, took: began.elapsed() })
    };
    match tokio::time::timeout(DEADLINE, exchange).await {
        Ok(answer) => answer,
        Err(_) => bail!("{}{}: no answer after {DEADLINE:?}", ask.host, ask.path),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Response;
    use hyper::service::service_fn;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn every_request_is_answered_also_over_closing_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let io = TokioIo::new(listener.accept().await.unwrap().0);
                let echo = service_fn(|request: Request<hyper::body::Incoming>| async move {
                    let body = request.headers()["x-say"].to_str().unwrap().to_owned();
                    let mut response = Response::new(body);
                    if request.uri().path() == "/close" {
                        response.headers_mut().insert("connection", "close".parse().unwrap());
                    }
                    Ok::<_, std::convert::Infallible>(response)
                });
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, echo));
            }
        });
        for path in ["/", "/close"] {
            let answers = send_many(&HttpRequest::new(at, "any", path).with("x-say", "hi"), 7, 3).await.unwrap();
            assert_eq!(answers.iter().filter(|answer| answer.body == "hi" && answer.status == 200).count(), 7);
        }
    }
}
