//! What the machine says of this process: time, CPU, memory, and the price of a sync.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use leasehold::SystemClock;
use leasehold::core::{BootTime, Clock as _};
use rustix::time::{ClockId, clock_gettime};

/// Elapsed time since its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopwatch {
    began: BootTime,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            began: SystemClock.elapsed(),
        }
    }

    pub(super) fn elapsed(self) -> Duration {
        SystemClock.elapsed().since(self.began)
    }

    pub(super) fn seconds(self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    pub(super) fn nanoseconds(self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The CPU time of this process, all threads together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cpu {
    spent: Duration,
}

impl Cpu {
    pub(super) fn now() -> Self {
        let reading = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = u64::try_from(reading.tv_sec).unwrap_or_default();
        let nanoseconds = u32::try_from(reading.tv_nsec).unwrap_or_default();
        Self {
            spent: Duration::new(seconds, nanoseconds),
        }
    }

    pub(super) fn seconds_until(self, then: Self) -> f64 {
        then.spent.saturating_sub(self.spent).as_secs_f64()
    }
}

/// The resident memory of this process in MiB; 0 where the system does not tell.
pub(super) fn resident_mib() -> f64 {
    status_mib("VmRSS:")
}

/// Its peak since the process started.
pub(super) fn resident_peak_mib() -> f64 {
    status_mib("VmHWM:")
}

fn status_mib(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}

/// How long small appends with a sync take in the folder, in milliseconds.
pub(super) fn sync_times(folder: &Path, count: usize) -> std::io::Result<Vec<f64>> {
    let mut file = File::create(folder.join("sync"))?;
    let page = [0_u8; 4_096];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let watch = Stopwatch::start();
        file.write_all(&page)?;
        file.sync_data()?;
        times.push(watch.seconds() * 1e3);
    }
    Ok(times)
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    percentile(&values, 0.5)
}

/// Of sorted values; 0 of none.
pub(super) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a length is within the length"
    )]
    let at = (last * share).round() as usize;
    sorted.get(at).copied().unwrap_or_default()
}
