//! Ports for programs that take the port to listen on as an argument. Servers inside a test bind port 0 and need none of this.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::net::TcpSocket;

/// A port that stays reserved, on every address of this machine, until this process ends: the system gives it to nobody who asks for any port and to no outgoing
/// connection. A program that gets its number can listen on it, also again after a restart, since both sides set SO_REUSEADDR (as std,
/// tokio, Go and Envoy do) and the socket that holds the port never listens.
pub fn reserve() -> Result<u16> {
    static RESERVED: Mutex<Vec<TcpSocket>> = Mutex::new(Vec::new());
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::UNSPECIFIED, 0).into()).context("no free port")?;
    let port = socket.local_addr()?.port();
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    Ok(port)
}

/// A reserved port with its address.
pub fn reserve_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, reserve()?).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn ports_are_closed_and_different() {
        let ports: BTreeSet<u16> = (0..50).map(|_| reserve().unwrap()).collect();
        assert_eq!(ports.len(), 50);
        assert!(ports.iter().all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_err()));
    }

    #[test]
    fn a_program_can_listen_on_a_reserved_port_again_and_again() {
        let address = reserve_address().unwrap();
        for host in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            for _ in 0..2 {
                let _listener = TcpListener::bind((host, address.port())).unwrap();
                TcpStream::connect(address).unwrap();
            }
        }
    }
}
