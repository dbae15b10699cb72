//! Envoy socket addresses and pipes.

use wire::envoy::config::core::v3::{Address, Pipe, SocketAddress, address, socket_address};

pub(crate) fn socket(host: &str, port: u16) -> Address {
    Address { address: Some(address::Address::SocketAddress(socket_address(host, port))) }
}

pub(crate) fn socket_address(host: &str, port: u16) -> SocketAddress {
    SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(port.into())),
        ..SocketAddress::default()
    }
}

pub(crate) fn pipe(path: &str) -> Address {
    Address { address: Some(address::Address::Pipe(Pipe { path: path.to_owned(), ..Pipe::default() })) }
}

/// `unix:///path` is a pipe, anything else a host.
pub(crate) fn bind(bind: &str, port: u16) -> Address {
    match bind.strip_prefix("unix://") {
        Some(path) => pipe(path),
        None => socket(bind, port),
    }
}
