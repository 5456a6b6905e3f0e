//! The gauges: what waits, what failed, how the clocks stand. A read that fails leaves its gauge alone.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;

/// Calendars further apart than this are warned about.
const SKEW_MAX: Duration = Duration::from_secs(5);

impl Pass<'_> {
    pub(super) async fn measure(&mut self) {
        let Self { sweep, .. } = *self;
        if let Some(gauges) = self.ask("gauges", sweep.stores.work.gauges()).await {
            sweep.metrics.gauges(&gauges);
            self.judge_skew(gauges.now);
            let oldest = gauges.lanes.iter().map(|lane| lane.oldest_age).max();
            self.swept.measured.oldest_age_seconds = Some(oldest.unwrap_or_default().as_secs_f64());
            self.swept.measured.failed = Some(gauges.dead);
        }
    }

    /// The store's clock decides; a worker whose own is far off is told so, for whoever reads its logs.
    fn judge_skew(&self, store_now: Timestamp) {
        let ahead = self.sweep.clock.now().duration_since(store_now);
        self.sweep.metrics.clock_skew(ahead.as_secs_f64());
        if ahead.unsigned_abs() > SKEW_MAX {
            tracing::warn!(
                seconds_ahead = ahead.as_secs_f64(),
                "the calendar differs from the store's, whose clock decides; set the time"
            );
        }
    }
}
