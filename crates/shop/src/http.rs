//! As much HTTP/1.1 as demo and probes need: one request at a time, bodies with a length or in chunks.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const DEADLINE: Duration = Duration::from_secs(20);

/// The body of a successful answer; an error for any other.
pub fn get(to: SocketAddr, host: &str, path: &str) -> Result<String> {
    let stream = connected(to)?;
    (&stream).write_all(request(host, path).as_bytes())?;
    let mut reader = BufReader::new(&stream);
    let head = head(&mut reader)?.with_context(|| format!("{to} closed the connection without an answer"))?;
    let body = String::from_utf8_lossy(&body(&head, &mut reader)?).into_owned();
    match head.split(' ').nth(1) {
        Some("200") => Ok(body),
        status => bail!("{to} answered {}: {}", status.unwrap_or("nothing"), body.trim()),
    }
}

/// Whether somebody listens there, takes a request in plaintext, and ends the connection without a byte.
pub fn hangs_up(at: SocketAddr) -> Result<bool> {
    let stream = connected(at)?;
    let asked = (&stream).write_all(request("any", "/").as_bytes());
    let answer = asked.and_then(|()| (&stream).read(&mut [0]));
    match answer.map_err(|e| e.kind()) {
        Ok(0) | Err(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => Ok(true),
        Ok(_) => Ok(false),
        Err(kind) => bail!("{at} neither answered nor hung up: {kind}"),
    }
}

fn connected(to: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, DEADLINE).with_context(|| format!("connect to {to}"))?;
    stream.set_read_timeout(Some(DEADLINE))?;
    Ok(stream)
}

fn request(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// Everything before the empty line; `None` at the end of the connection.
pub fn head(reader: &mut impl BufRead) -> Result<Option<String>> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if matches!(&head[before..], "\r\n" | "\n") {
            return Ok(Some(head));
        }
    }
}

fn body(head: &str, reader: &mut impl BufRead) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    if field(head, "transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let length = u64::from_str_radix(line.trim(), 16).with_context(|| format!("chunk of length {line:?}"))?;
            reader.by_ref().take(length).read_to_end(&mut body)?;
            reader.read_line(&mut line)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
    match field(head, "content-length") {
        Some(length) => reader.take(length.parse().context("content-length")?).read_to_end(&mut body)?,
        None => reader.read_to_end(&mut body)?,
    };
    Ok(body)
}

pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    fields.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, text: &str) {
        let mut reader = answer.as_bytes();
        let head = head(&mut reader).unwrap().unwrap();
        assert_eq!(body(&head, &mut reader).unwrap(), text.as_bytes());
    }

    #[test]
    fn three_kinds_of_body() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd", "abc");
        check(
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n",
            "abc0123456789",
        );
        check("HTTP/1.1 200 OK\r\n\r\nabc", "abc");
    }

    #[test]
    fn a_closed_connection_is_not_an_answer() {
        assert!(head(&mut "HTTP/1.1 200 OK\r\nHalf".as_bytes()).unwrap().is_none());
    }
}
