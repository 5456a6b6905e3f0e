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

    /// Whether it was asked at all.
    pub fn was_asked(&self) -> bool {
        *self.requests.borrow() > 0
    }

    /// What was asked so far counts too: a request that came before the worker ran is not lost.
    pub(crate) fn subscribe(&self) -> Requests {
        Requests {
            requests: self.requests.subscribe(),
            heard: 0,
        }
    }

    /// Asks on each TERM or INT that the process receives from this call on, for as long as the calling
    /// tokio runtime lives. Call it within one.
    ///
    /// # Errors
    /// The operating system's, if the signals cannot be listened to.
    pub fn on_signals(&self) -> std::io::Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let stopper = self.clone();
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = terminate.recv() => "TERM",
                    _ = interrupt.recv() => "INT",
                };
                tracing::info!(signal = name, "asked to stop");
                stopper.stop();
            }
        });
        Ok(())
    }
}

/// One worker's ear for a [`Stopper`].
pub(crate) struct Requests {
    requests: watch::Receiver<u32>,
    heard: u32,
}

impl Requests {
    /// How often it was asked since the last answer.
    pub(crate) fn so_far(&mut self) -> u32 {
        let requests = *self.requests.borrow_and_update();
        requests - std::mem::replace(&mut self.heard, requests)
    }

    /// Waits until it was asked again, and answers how often since the last answer. Safe to drop.
    /// For ever once every stopper is gone.
    pub(crate) async fn asked(&mut self) -> u32 {
        let heard = self.heard;
        let is_gone = self
            .requests
            .wait_for(|requests| *requests > heard)
            .await
            .is_err();
        if is_gone {
            std::future::pending().await
        } else {
            self.so_far()
        }
    }
}
