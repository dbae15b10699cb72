//! Classes of proxies that all disconnected are dropped after a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use views::Views;

/// A class is dropped at the second sweep that finds it unused: proxies that reconnect within seconds find theirs.
const INTERVAL: Duration = Duration::from_secs(10);

/// Sweeps for as long as the process lives.
pub(crate) async fn follow(views: Arc<Views>) {
    loop {
        sleep(INTERVAL).await;
        views.sweep_classes();
    }
}
