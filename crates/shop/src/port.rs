//! Ports for programs that take the port to listen on as an argument. `testkit::port` does the same for the tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

/// A port of 127.0.0.1 that stays reserved until this process ends: the system gives it to nobody else who asks for any port.
pub fn reserve() -> Result<SocketAddr> {
    hold(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port on 127.0.0.1")?)
}

/// The usual port, so that commands need no flag; another when it is taken.
pub fn reserve_usual(port: u16) -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_or_else(|_| reserve(), |listener| hold(&listener))
}

/// Keeps an accepted connection of the listener. It has the port and, from the listener, SO_REUSEADDR; it does not listen. So a program that
/// sets SO_REUSEADDR, too, can listen on the port once the listener is closed. std has no socket that is bound and does not listen.
fn hold(listener: &TcpListener) -> Result<SocketAddr> {
    static HELD: Mutex<Vec<[TcpStream; 2]>> = Mutex::new(Vec::new());
    let address = listener.local_addr()?;
    let near = TcpStream::connect(address).context("connect to a port of our own")?;
    let (far, _) = listener.accept()?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push([near, far]);
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_can_listen_on_a_reserved_port_again_and_again() {
        let address = reserve().unwrap();
        assert!(TcpStream::connect(address).is_err(), "nobody listens yet");
        for host in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            for _ in 0..2 {
                let _listener = TcpListener::bind((host, address.port())).unwrap();
                TcpStream::connect(address).unwrap();
            }
        }
    }

    #[test]
    fn a_usual_port_that_is_taken_is_replaced() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let _listener = TcpListener::bind(taken).unwrap();
        assert_ne!(reserve_usual(taken.port()).unwrap(), taken);
    }
}
