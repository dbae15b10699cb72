//! Panics of any thread: counted, and logged with their place instead of printed.

use std::sync::Arc;

use tracing::error;

use crate::metrics::Metrics;

/// Replaces the hook of the process.
pub fn count_panics(metrics: &Arc<Metrics>) {
    let panics = metrics.panics.clone();
    std::panic::set_hook(Box::new(move |panic| {
        panics.inc();
        let message = panic.payload_as_str().unwrap_or("no message");
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        error!(place, message, "internal error: panic");
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_any_thread_is_counted() {
        let metrics = Arc::new(Metrics::new(prometheus::Registry::new()).unwrap());
        count_panics(&metrics);
        let panicked = std::thread::spawn(|| panic!("on purpose")).join();
        // The hook is the process's: other tests go on with the usual one.
        drop(std::panic::take_hook());
        assert!(panicked.is_err());
        assert!(metrics.panics.get() >= 1);
    }
}
