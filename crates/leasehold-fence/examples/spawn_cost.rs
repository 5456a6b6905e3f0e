//! What the fence costs, in one run: time from spawn to result beside a plain spawn, memory of the
//! processes beside a command, and many commands at once.
//!
//! `cargo run --release -p leasehold-fence --example spawn_cost`

#![expect(clippy::print_stdout, reason = "the figures are for people")]

use std::error::Error;
use std::fs;
use std::time::Duration;

use leasehold_fence::{Command, Deadline, Ending, Fence};

/// So many of each, one after the other in turn.
const ROUNDS: usize = 300;
/// So many at once.
const AT_ONCE: usize = 200;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    leasehold_fence::enter();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let fence = Fence::start()?;
        times(&fence).await?;
        memory(&fence).await?;
        at_once(&fence).await?;
        fence.close();
        Ok(())
    })
}

async fn times(fence: &Fence) -> Outcome<()> {
    let (mut plain, mut fenced, mut driven) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let began = now();
        // As the runtime would: outputs in pipes, read to their ends.
        let output = tokio::task::spawn_blocking(|| {
            std::process::Command::new("/bin/true").env_clear().output()
        });
        assert!(output.await??.status.success());
        let between = now();
        run(fence, Command::new("/bin/true")).await?;
        let ended = now();
        // The same while the next warden has had time to get ready, as where runs are a moment apart.
        tokio::time::sleep(READY).await;
        let rested = now();
        run(fence, Command::new("/bin/true")).await?;
        // The first starts everything.
        if round > 0 {
            plain.push(between.saturating_sub(began));
            fenced.push(ended.saturating_sub(between));
            driven.push(now().saturating_sub(rested));
        }
        tokio::time::sleep(READY).await;
    }
    let plain = Figures::of(plain);
    println!("/bin/true from spawn to result, {ROUNDS} each, in turn:");
    println!("  plain                   {plain}");
    for (name, times) in [
        ("through the fence      ", fenced),
        ("the same a moment later", driven),
    ] {
        let times = Figures::of(times);
        let more = times.median.saturating_sub(plain.median);
        println!("  {name} {times}, {} more at the median", Ms(more));
    }
    Ok(())
}

/// Longer than a warden needs to be made.
const READY: Duration = Duration::from_millis(10);

async fn run(fence: &Fence, command: Command) -> Outcome<()> {
    let finished = fence.run(command, None)?.finish(|_| ()).await;
    match finished.ending {
        Ending::Exited { code: 0 } => Ok(()),
        other => Err(other.to_string().into()),
    }
}

async fn memory(fence: &Fence) -> Outcome<()> {
    let child = fence.run(Command::new("/bin/sleep").with_arguments(["60"]), None)?;
    let control = child.control();
    let waiting = tokio::spawn(child.finish(|_| ()));
    tokio::time::sleep(READY * 10).await;
    println!("memory of their own, while a command sleeps:");
    for entry in fs::read_dir("/proc")?.flatten() {
        let folder = entry.path();
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let name = name.trim();
        let is_this_program =
            fs::read_link(folder.join("exe")).ok() == std::env::current_exe().ok();
        if name.starts_with("fence-") && is_this_program {
            let pid = entry.file_name();
            println!(
                "  {name:<14} {:>5} KiB (process {})",
                own_kib(&folder)?,
                pid.display()
            );
        }
    }
    control.kill();
    waiting.await?;
    Ok(())
}

/// What no other process shares with it.
fn own_kib(folder: &std::path::Path) -> Outcome<u64> {
    let sums = fs::read_to_string(folder.join("smaps_rollup"))?;
    let private = sums
        .lines()
        .filter(|line| line.starts_with("Private_Clean:") || line.starts_with("Private_Dirty:"));
    let kib = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(kib.sum())
}

async fn at_once(fence: &Fence) -> Outcome<()> {
    let began = now();
    let sleep = || Command::new("/bin/sleep").with_arguments(["2"]);
    let children: Result<Vec<_>, _> = (0..AT_ONCE).map(|_| fence.run(sleep(), None)).collect();
    let handed_over = now();
    let waiting: Vec<_> = children?
        .into_iter()
        .map(|child| tokio::spawn(child.finish(|_| ())))
        .collect();
    for one in waiting {
        assert_eq!(one.await?.ending, Ending::Exited { code: 0 });
    }
    println!(
        "{AT_ONCE} commands of 2 s at once: handed over after {}, all ended after {}",
        Ms(handed_over.saturating_sub(began)),
        Ms(now().saturating_sub(began))
    );
    Ok(())
}

fn now() -> Duration {
    Deadline::after(Duration::ZERO).since_boot()
}

struct Figures {
    median: Duration,
    p99: Duration,
}

impl Figures {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self {
            median: times[times.len() / 2],
            p99: times[times.len() * 99 / 100],
        }
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "median {}, p99 {}", Ms(self.median), Ms(self.p99))
    }
}

struct Ms(Duration);

impl std::fmt::Display for Ms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ms", self.0.as_secs_f64() * 1_000.0)
    }
}
