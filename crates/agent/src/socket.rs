//! The Unix domain socket of the SDS server.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use tokio::{net::UnixListener, sync::watch};
use xds::{Connections, Metrics, Options, Peer, Server, ServerPort};

use crate::{Secrets, secrets::SecretsProvider};

/// Serves until dropped. Replaces a leftover socket file.
pub async fn serve(path: &Path, secrets: Arc<Secrets>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    // The key is sent over it: only the owner may connect.
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let metrics = Metrics::new(&prometheus::Registry::new()).map_err(io::Error::other)?;
    let server = Server::new(Arc::new(SecretsProvider(secrets)), Options::default(), metrics, Connections::new());
    let drain = watch::Sender::new(None);
    loop {
        let (socket, _) = listener.accept().await?;
        let peer = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), certificate: None };
        tokio::spawn(server.connection(socket, peer, ServerPort::default(), drain.subscribe()));
    }
}
