//! What work cost: CPU time of the worker and of the server, and what was written ahead.

use std::fs;

use rustix::param::clock_ticks_per_second;
use serde::{Deserialize, Serialize};

use super::machine::Cpu;

/// The counters at one moment.
#[derive(Debug)]
pub(super) struct Spent {
    pub(super) worker: Cpu,
    /// Seconds; `None` where there is no server, or one that cannot be looked at.
    pub(super) server: Option<f64>,
    /// Bytes; `None` where there is no server.
    pub(super) wal: Option<f64>,
}

impl Spent {
    /// What was spent from `self` until then, for each of so many items.
    pub(super) fn until(&self, then: &Self, items: u64) -> Cost {
        let items = items.max(1) as f64;
        let between = |from: Option<f64>, to: Option<f64>| Some(to? - from?);
        let server = between(self.server, then.server);
        Cost {
            worker_cpu_seconds_per_10_000: self.worker.seconds_until(then.worker) * 1e4 / items,
            server_cpu_seconds_per_10_000: server.map(|seconds| seconds * 1e4 / items),
            wal_bytes_per_item: between(self.wal, then.wal).map(|bytes| bytes / items),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cost {
    /// Of this process.
    pub(super) worker_cpu_seconds_per_10_000: f64,
    /// Of all the server's processes, whatever they did meanwhile; `null` where they are not to be seen.
    pub(super) server_cpu_seconds_per_10_000: Option<f64>,
    /// What the server wrote ahead; `null` on SQLite.
    pub(super) wal_bytes_per_item: Option<f64>,
}

/// The CPU seconds of the server whose first process has that id: its own, its children's, and those of
/// children that have ended. `None` where it is not on this machine, or the system does not tell.
pub(super) fn server_cpu_seconds(postmaster: u32) -> Option<f64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It may have ended since it was listed; then its time is in the first process's.
        let Some(process) = Process::read(id) else {
            continue;
        };
        if id == postmaster {
            ticks += process.own_ticks + process.children_ticks;
        } else if process.parent == postmaster {
            ticks += process.own_ticks;
        }
    }
    Some(ticks as f64 / clock_ticks_per_second() as f64)
}

/// The first process of the server that the process of that id belongs to, if that is a server's.
pub(super) fn postmaster_of(backend: u32) -> Option<u32> {
    let parent = Process::read(backend)?.parent;
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    ["postgres", "postmaster"]
        .contains(&name.trim())
        .then_some(parent)
}

struct Process {
    parent: u32,
    own_ticks: u64,
    children_ticks: u64,
}

impl Process {
    fn read(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own_ticks: ticks(11)? + ticks(12)?,
            children_ticks: ticks(13)? + ticks(14)?,
        })
    }
}
