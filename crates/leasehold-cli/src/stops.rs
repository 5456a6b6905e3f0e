//! Every way in which a person or a platform asks a program to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// An ear for requests to stop.
pub(crate) struct Stops {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if whoever started this program has it live on when its terminal is gone, as `nohup` does.
    hang_up: Option<Signal>,
}

impl Stops {
    /// Listens from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let hang_up = (!is_hang_up_ignored())
            .then(|| signal(SignalKind::hangup()))
            .transpose()?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up,
        })
    }

    /// The next request. May be dropped at any time, and none is lost.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = hung_up(self.hang_up.as_mut()) => {}
        }
    }
}

async fn hung_up(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether this program was started with the signal ignored. To listen to it would undo that.
fn is_hang_up_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // A mask whose lowest bit is the signal of number 1.
    ignored.is_some_and(|mask| mask & (1 << (SignalKind::hangup().as_raw_value() - 1)) != 0)
}
