//! Whether the workers of a file of settings would run what is enqueued.

use leasehold::{Kind, Lane};

use super::page::nearest;
use super::{Config, KindConfig, Setting};

impl Config {
    /// Every lane that a worker of these settings claims from.
    pub(crate) fn lanes_served(&self) -> Vec<Lane> {
        let workers = self.workers().into_iter();
        workers.flat_map(|worker| worker.lanes).collect()
    }

    /// Why no worker of the file would run an item of that kind on that lane. Another's may, so this is
    /// nothing to refuse; and a file that names no kind is no worker's.
    pub(crate) fn unserved(&self, kind: &Kind, lane: &Lane) -> Option<String> {
        let file = self.file.as_ref()?.display();
        if self.kinds.is_empty() {
            return None;
        }
        if !self.kinds.contains_key(kind) {
            let known: Vec<&str> = self.kinds.keys().map(Kind::as_str).collect();
            let rest = match nearest(kind.as_str(), &known) {
                Some(near) => format!("; {near} is there"),
                None => ", so none of its workers runs the item".to_owned(),
            };
            return Some(format!("no kind {kind} in {file}{rest}"));
        }
        let lanes = self.lanes_served();
        if lanes.contains(lane) {
            return None;
        }
        let known: Vec<&str> = lanes.iter().map(Lane::as_str).collect();
        let rest = match nearest(lane.as_str(), &known) {
            Some(near) => format!("{near} is there"),
            None => format!("they claim from {}", known.join(", ")),
        };
        Some(format!(
            "no worker of {file} claims from the lane {lane}; {rest}"
        ))
    }
}

/// A warning for each kind whose items this file's workers would not claim. Another's may.
pub(super) fn unserved_kinds(config: &Config, file: &str) -> Vec<String> {
    let lanes = config.lanes_served();
    let kinds = config.kinds.iter();
    let unserved = kinds.filter(|(_, kind)| !lanes.contains(&kind.lane.value));
    let warn = |(name, kind): (&Kind, &KindConfig)| {
        let Setting { value, origin } = &kind.lane;
        let place = origin.shown(file);
        format!(
            "{place}: kinds.{name}.lane is {value}, and no worker of this file claims from it; \
             add it to worker.lanes unless another worker does"
        )
    };
    unserved.map(warn).collect()
}

/// A warning for each schedule whose items this file's workers would not run. Another's may.
pub(super) fn unserved_schedules(config: &Config, file: &str) -> Vec<String> {
    let schedules = config.schedules.iter();
    let unserved = schedules.filter_map(|(name, schedule)| {
        let it = &schedule.value;
        let why = config.unserved(&it.kind, &it.lane)?;
        Some(format!(
            "{}: schedules.{name}: {why}",
            schedule.origin.shown(file)
        ))
    });
    unserved.collect()
}

/// A warning for each lane whose capacity none of this file's kinds would use. Who enqueues may name the
/// lane, so it is nothing to refuse.
pub(super) fn idle_lanes(config: &Config, file: &str) -> Vec<String> {
    if config.kinds.is_empty() {
        return Vec::new();
    }
    let is_named = |lane: &Lane| config.kinds.values().any(|kind| kind.lane.value == *lane);
    let idle = config.lanes.iter().filter(|(lane, _)| !is_named(lane));
    let warn = |(lane, capacity): (&Lane, &Setting<u32>)| {
        let place = capacity.origin.shown(file);
        format!(
            "{place}: the lane {lane} has a capacity of its own, and no kind of this file names it; \
             set lane = \"{lane}\" in a kind's section, unless items are enqueued there by name"
        )
    };
    idle.map(warn).collect()
}
