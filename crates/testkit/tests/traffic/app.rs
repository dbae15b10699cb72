//! The two applications: one that answers on three ports, one that calls them by the service's address.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::grpc::{self, Body, MessageReader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 96, 7, 7);

/// Answers until it is killed; makes the file once it listens.
pub(crate) async fn serve(listening: &Path) -> Result<()> {
    let at = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
    let (http, grpc, tcp) = (at(8080).await?, at(9090).await?, at(5500).await?);
    std::fs::write(listening, "")?;
    tokio::try_join!(serve_http(http), serve_grpc(grpc), serve_tcp(tcp))?;
    Ok(())
}

async fn serve_http(listener: TcpListener) -> Result<()> {
    loop {
        let io = TokioIo::new(listener.accept().await?.0);
        let server = hyper::server::conn::http1::Builder::new();
        tokio::spawn(server.serve_connection(io, service_fn(greet)));
    }
}

/// Says hello and who, by the header that the sidecar wrote, is asking.
async fn greet(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let caller = request.headers().get("x-forwarded-client-cert").and_then(|v| v.to_str().ok());
    Ok(Response::new(format!("hello {}", caller.unwrap_or("stranger")).into()))
}

async fn serve_grpc(listener: TcpListener) -> Result<()> {
    loop {
        let io = TokioIo::new(listener.accept().await?.0);
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        tokio::spawn(async move { server.serve_connection(io, service_fn(echo)).await });
    }
}

async fn echo(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (sender, body) = grpc::body();
    let mut reader = MessageReader::new(request.into_body());
    if let Ok(Some(message)) = reader.next::<String>().await {
        sender.send(&message);
    }
    sender.finish();
    Ok(grpc::response(body))
}

async fn serve_tcp(listener: TcpListener) -> Result<()> {
    loop {
        let (mut io, _) = listener.accept().await?;
        tokio::spawn(async move {
            let (mut reader, mut writer) = io.split();
            tokio::io::copy(&mut reader, &mut writer).await
        });
    }
}

/// One request of each kind; writes what came back.
pub(crate) async fn call_all(answers: &Path) -> Result<()> {
    let http = call_http().await.context("HTTP")?;
    let grpc = call_grpc().await.context("gRPC")?;
    let tcp = call_tcp().await.context("TCP")?;
    std::fs::write(answers, format!("http: {http}\ngrpc: {grpc}\ntcp: {tcp}\n"))?;
    Ok(())
}

async fn call_http() -> Result<String> {
    let io = TokioIo::new(TcpStream::connect(SocketAddr::from((SERVICE, 80))).await?);
    let (mut connection, driver) = hyper::client::conn::http1::handshake(io).await?;
    tokio::spawn(driver);
    let request = Request::get("/").header("host", "web.shop").body(Empty::<Bytes>::new())?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let text = String::from_utf8(response.into_body().collect().await?.to_bytes().into())?;
    ensure!(status.is_success(), "{status}: {text}");
    Ok(text)
}

async fn call_grpc() -> Result<String> {
    let io = TcpStream::connect(SocketAddr::from((SERVICE, 9000))).await?;
    let (_sender, mut reader) = grpc::call(io, "web.shop:9000", "/test.Echo/Say", &"hello".to_owned()).await?;
    let text = reader.next::<String>().await?.context("no answer")?;
    ensure!(reader.next::<String>().await?.is_none(), "more than one answer");
    Ok(text)
}

async fn call_tcp() -> Result<String> {
    let mut io = TcpStream::connect(SocketAddr::from((SERVICE, 5000))).await?;
    io.write_all(b"hello").await?;
    io.shutdown().await?;
    let mut text = String::new();
    io.read_to_string(&mut text).await?;
    Ok(text)
}
