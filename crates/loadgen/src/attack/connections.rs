//! Connections that are opened and not used: idle, in the middle of a request or of a handshake, or with pages that nobody reads.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, bail};
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;

use super::{Attack, Held, Targets, dial};
use crate::tls;

pub(super) async fn strike(attack: Attack, to: &Targets, number: usize) -> Result<Option<Held>> {
    let Targets { xds, secure, http, monitoring, webhook } = *to;
    let in_turn = |ports: &[SocketAddr]| ports[number % ports.len()];
    let (port, sent) = match attack {
        Attack::IdleSockets => (in_turn(&[http, monitoring, webhook, xds, secure]), Vec::new()),
        Attack::HalfRequests => (in_turn(&[http, monitoring]), b"GET /ready HTTP/1.1\r\nHost: loc".to_vec()),
        Attack::UnreadPages => {
            (in_turn(&[http, monitoring]), b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100))
        }
        // A record of 512 bytes, of which none comes.
        Attack::HalfHandshakes => (in_turn(&[secure, webhook]), vec![0x16, 3, 1, 2, 0]),
        Attack::Handshakes => {
            let connector = TlsConnector::from(Arc::new(tls::anonymous()?));
            let stream = dial(in_turn(&[secure, webhook]), number).await?;
            return Ok(Some(Box::new(connector.connect(tls::server_name(), stream).await?)));
        }
        other => bail!("{other:?} is more than a connection"),
    };
    let mut stream = dial(port, number).await?;
    stream.write_all(&sent).await?;
    Ok(Some(Box::new(stream)))
}
