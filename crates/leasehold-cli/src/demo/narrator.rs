//! Tells the story as it happens, on standard error: lines with the time, and a bar on a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::SystemClock;
use leasehold::core::{BootTime, Clock as _};

/// Where the story is told.
pub(super) struct Narrator {
    began: BootTime,
    bar: ProgressBar,
}

impl Narrator {
    /// The story begins now, about so many items.
    pub(super) fn new(items: usize) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(
                Some(items as u64),
                ProgressDrawTarget::stderr_with_hz(BAR_HZ),
            );
            let style = ProgressStyle::with_template(
                "         {bar:32.cyan/dim} {pos} of {len} done  {msg:.dim}",
            );
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        } else {
            ProgressBar::hidden()
        };
        Self {
            began: SystemClock.elapsed(),
            bar,
        }
    }

    /// A story of so few items that there is nothing to draw.
    pub(super) fn without_bar() -> Self {
        Self {
            began: SystemClock.elapsed(),
            bar: ProgressBar::hidden(),
        }
    }

    /// How long the story has gone on.
    pub(super) fn elapsed(&self) -> Duration {
        SystemClock.elapsed().since(self.began)
    }

    /// How long it has gone on since it had gone on for so long.
    pub(super) fn since(&self, earlier: Duration) -> Duration {
        self.elapsed().saturating_sub(earlier)
    }

    /// Tells an event.
    pub(super) fn say(&self, text: &str) {
        self.event(Style::new(), text);
    }

    /// Tells what was done to a worker.
    pub(super) fn strike(&self, text: &str) {
        self.event(Style::new().fg_color(Some(AnsiColor::Red.into())), text);
    }

    /// Tells what the lease did about it.
    pub(super) fn mend(&self, text: &str) {
        self.event(Style::new().fg_color(Some(AnsiColor::Green.into())), text);
    }

    /// Adds to the last event.
    pub(super) fn note(&self, text: &str) {
        self.line(&format!("          {text}"));
    }

    /// Shows how far the work has come.
    pub(super) fn progress(&self, done: usize, living: &str) {
        self.bar.set_position(done as u64);
        self.bar.set_message(living.to_owned());
    }

    /// The work is over; the bar goes away.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn event(&self, style: Style, text: &str) {
        let dim = Style::new().dimmed();
        let seconds = self.elapsed().as_secs_f64();
        self.line(&format!(
            "{dim}[{seconds:5.1} s]{dim:#} {style}{text}{style:#}"
        ));
    }

    fn line(&self, text: &str) {
        // The bar steps aside while the line is written. Nobody may be listening.
        self.bar.suspend(|| {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        });
    }
}

/// `1 item`, `2 items`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

/// How often the bar is drawn at most, in a second.
const BAR_HZ: u8 = 12;

impl Drop for Narrator {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
