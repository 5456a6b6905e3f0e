//! When a worker is asked to go.

use tokio::sync::watch;

/// Asks a worker to drain. Cheap to clone; dropping all of them asks for nothing.
#[derive(Debug, Clone)]
pub struct Stopper {
    requests: watch::Sender<u32>,
}

impl Default for Stopper {
    fn default() -> Self {
        Self::new()
    }
}

impl Stopper {
    /// Nothing asked for yet.
    pub fn new() -> Self {
        Self {
            requests: watch::Sender::new(0),
        }
    }

    /// Asks once. A second time cuts the drain's wait short: hand-backs go out at once.
    pub fn stop(&self) {
        self.requests
            .send_modify(|requests| *requests = requests.saturating_add(1));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u32> {
        self.requests.subscribe()
    }

    /// Asks on each TERM or INT that the process receives, until dropped.
    ///
    /// # Errors
    /// The operating system's, if the signals cannot be listened to.
    pub async fn on_signals(self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        loop {
            let name = tokio::select! {
                _ = terminate.recv() => "TERM",
                _ = interrupt.recv() => "INT",
            };
            tracing::info!(signal = name, "asked to stop");
            self.stop();
        }
    }
}
