//! Plays simulation seeds: `--seed N` in detail, `--seeds A..B` and `--fresh N` in bulk.
//!
//! Prints one line of figures, and exits with 1 after the first failure, whose seed it names. The same
//! seeds have the same digest on every machine.

use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_testkit::sim::{self, Failure, Report, Settings};

const USAGE: &str = "\
sim [--seed N]... [--seeds A..B]... [--fresh N] [--workers N] [--items N]
  --seed N      plays this seed and prints everything that happens
  --seeds A..B  plays the seeds from A to below B
  --fresh N     plays N seeds that nobody has chosen
  --workers N   how many workers (5)
  --items N     how many items (40)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let orders = match Orders::parse(&arguments) {
        Ok(orders) => orders,
        Err(words) => {
            say(format_args!("{words}\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let began = now();
    match orders.play() {
        Ok((seeds, report)) => {
            let items = report.of("items");
            let seconds = began.elapsed().as_secs_f64();
            let digest = report.digest();
            say(format_args!(
                "sim: {seeds} seeds, {items} items, {seconds:.1} s, digest {digest:016x}: {report}"
            ));
            ExitCode::SUCCESS
        }
        Err(failure) => {
            let set_up = orders.set_up();
            say(format_args!("sim: FAILED: {failure}{set_up}"));
            ExitCode::FAILURE
        }
    }
}

struct Orders {
    /// In detail.
    told: Vec<u64>,
    bulk: Vec<Range<u64>>,
    settings: Settings,
}

impl Orders {
    fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut orders = Self {
            told: Vec::new(),
            bulk: Vec::new(),
            settings: Settings::default(),
        };
        let mut arguments = arguments.iter();
        while let Some(flag) = arguments.next() {
            let value = arguments
                .next()
                .ok_or_else(|| format!("`{flag}` needs a value after it"))?;
            match flag.as_str() {
                "--seed" => orders.told.push(number(flag, value)?),
                "--seeds" => {
                    let (from, to) = value
                        .split_once("..")
                        .ok_or_else(|| format!("`--seeds` takes a range, not `{value}`"))?;
                    orders.bulk.push(number(flag, from)?..number(flag, to)?);
                }
                "--fresh" => {
                    // Far from the seeds that people choose.
                    let first = fastrand::u64(1 << 32..1 << 62);
                    orders.bulk.push(first..first + number(flag, value)?);
                }
                "--workers" => orders.settings.workers = count(flag, value)?,
                "--items" => orders.settings.items = count(flag, value)?,
                _ => return Err(format!("`{flag}` is not known")),
            }
        }
        if orders.told.is_empty() && orders.bulk.is_empty() {
            return Err("name the seeds to play".to_owned());
        }
        Ok(orders)
    }

    /// What the replay's command lacks, if the set-up is not the usual one.
    fn set_up(&self) -> String {
        let Settings { workers, items, .. } = self.settings;
        let usual = Settings::default();
        if (workers, items) == (usual.workers, usual.items) {
            String::new()
        } else {
            format!(" -- --workers {workers} --items {items}")
        }
    }

    fn play(&self) -> Result<(u64, Report), Failure> {
        let mut report = Report::default();
        let mut seeds = 0;
        for seed in &self.told {
            let settings = Settings {
                trace: Some(say),
                ..self.settings
            };
            report.add(&play(*seed, &settings)?);
            seeds += 1;
        }
        for range in &self.bulk {
            report.add(&in_bulk(range.clone(), &self.settings)?);
            seeds += range.end.saturating_sub(range.start);
        }
        Ok((seeds, report))
    }
}

/// Plays the range on as many threads as there are processors. Of several failures the lowest seed's
/// is told, so that a failing range tells the same each time.
fn in_bulk(range: Range<u64>, settings: &Settings) -> Result<Report, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(range.start);
    let has_failed = AtomicBool::new(false);
    let total = Mutex::new((Report::default(), None::<Failure>));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= range.end {
                        return;
                    }
                    let played = play(seed, settings);
                    let Ok(mut total) = total.lock() else { return };
                    match played {
                        Ok(report) => total.0.add(&report),
                        Err(failure) => {
                            has_failed.store(true, Ordering::Relaxed);
                            let is_lowest = total.1.as_ref().is_none_or(|other| seed < other.seed);
                            if is_lowest {
                                total.1 = Some(failure);
                            }
                        }
                    }
                }
            });
        }
    });
    // Nothing panics while it holds the lock.
    let (report, failure) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(report), Err)
}

/// Plays one seed. A panic is a failure of that seed like any other.
fn play(seed: u64, settings: &Settings) -> Result<Report, Failure> {
    std::panic::catch_unwind(|| sim::run(seed, settings)).unwrap_or_else(|_| {
        Err(Failure {
            seed,
            after: Duration::ZERO,
            words: "it panicked; the message stands above".to_owned(),
        })
    })
}

fn number(flag: &str, text: &str) -> Result<u64, String> {
    text.parse()
        .map_err(|_| format!("`{flag}` takes whole numbers, and `{text}` is none"))
}

fn count(flag: &str, text: &str) -> Result<usize, String> {
    let count = usize::try_from(number(flag, text)?).unwrap_or(usize::MAX);
    if (1..=1_000).contains(&count) {
        Ok(count)
    } else {
        Err(format!("`{flag}` takes 1 to 1000"))
    }
}

fn say(what: fmt::Arguments<'_>) {
    // Whoever closed the pipe has seen enough.
    let _ = writeln!(std::io::stdout().lock(), "{what}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long it took is told to people and decides nothing"
)]
fn now() -> Instant {
    Instant::now()
}
