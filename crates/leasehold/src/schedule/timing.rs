//! When a schedule has its ticks: cron expressions in a time zone, and fixed intervals.
//!
//! # What the clocks' changes do to cron
//!
//! As cron has always done it. An expression whose minute and hour name times of day (neither begins with
//! `*`) is meant by the wall clock: a time that a change of the clocks leaves out comes at the first instant
//! after the gap, and one that comes twice counts the first time. An expression with `*` in either field is
//! meant by the minutes that pass: it has its ticks in both passes of an hour that comes twice, and none in
//! an hour that is left out.

use std::fmt;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use croner::time::Weekday;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use leasehold_core::text::clip;

/// When the ticks are. Parsed once, from what a schedule's definition says.
#[derive(Debug, Clone)]
pub struct Timing {
    rule: Rule,
    starts_at: Option<Timestamp>,
    ends_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
enum Rule {
    Calendar(Box<Calendar>),
    /// Every so many microseconds, counted from an anchor.
    Every {
        microseconds: i64,
        anchor: Timestamp,
    },
}

#[derive(Debug, Clone)]
struct Calendar {
    cron: Cron,
    zone: TimeZone,
    /// In order.
    times: Vec<Time>,
    /// Whether the times are meant by the wall clock.
    is_fixed: bool,
}

/// An expression or a zone that says nothing. Nothing was stored; correct it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; {remedy}")]
pub struct TimingError {
    what: String,
    why: String,
    remedy: String,
}

impl TimingError {
    fn new(what: impl Into<String>, why: &str, remedy: &str) -> Self {
        Self {
            what: what.into(),
            why: why.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// What is wrong.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Why it is.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What to write instead.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

/// More often than once a second, a loop of one's own does it better than a queue.
pub const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// Longer ones are a calendar's.
pub const INTERVAL_MAX: Duration = Duration::from_hours(24 * 366);

/// What an expression that is a fixed interval begins with.
const EVERY: &str = "@every ";

/// So far ahead a day is looked for: leap days on a given weekday come every 28 years, and 40 around a
/// century without a leap year.
const DAYS_AHEAD_MAX: u32 = 41 * 366;

/// No change of the clocks but those of the date line moves them further than this.
const CHANGE_MAX: SignedDuration = SignedDuration::from_hours(3);

/// What is wrong with an expression, in one place: its words are shown beside what was written.
const FORM: &str = "write five fields (minute, hour, day of month, month, day of week), as in \"0 3 * * MON-FRI\", \
                    or @hourly, @daily, @weekly, @monthly, @yearly, or @every 15m";

impl Timing {
    /// Reads an expression: five fields of cron, a nickname, or `@every` and a length such as `90s` or `1h`.
    ///
    /// # Errors
    /// [`TimingError`] says what is wrong and what to write instead.
    pub fn parse(
        expression: &str,
        zone: &str,
        starts_at: Option<Timestamp>,
        ends_at: Option<Timestamp>,
    ) -> Result<Self, TimingError> {
        let zone = read_zone(zone)?;
        if let (Some(starts), Some(ends)) = (starts_at, ends_at)
            && ends < starts
        {
            return Err(TimingError::new(
                "the schedule ends before it starts",
                "no tick lies between the two",
                "give an end after the start",
            ));
        }
        let rule = if let Some(length) = expression.strip_prefix(EVERY) {
            Rule::Every {
                microseconds: read_interval(length)?,
                anchor: starts_at.unwrap_or(Timestamp::UNIX_EPOCH),
            }
        } else {
            Rule::Calendar(Box::new(Calendar::parse(expression, zone)?))
        };
        let timing = Self {
            rule,
            starts_at,
            ends_at,
        };
        if let Rule::Calendar(calendar) = &timing.rule
            && calendar.next_after(Timestamp::UNIX_EPOCH).is_none()
        {
            return Err(TimingError::new(
                format!("{expression:?} never comes"),
                "its months have no such day",
                "name a day that its months have",
            ));
        }
        Ok(timing)
    }

    /// The expression of a fixed interval.
    pub fn every(interval: Duration) -> String {
        let seconds = interval.as_secs();
        match interval.subsec_micros() {
            0 => format!("{EVERY}{seconds}s"),
            micros => format!("{EVERY}{}us", seconds * 1_000_000 + u64::from(micros)),
        }
    }

    /// The first tick after the instant; `None` if there is none any more.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // One instant before the start, so that a tick at the start itself is one.
        let after = match self.starts_at {
            Some(starts) if starts > after => starts.checked_sub(1.nanosecond()).ok()?,
            _ => after,
        };
        let next = match &self.rule {
            Rule::Calendar(calendar) => calendar.next_after(after)?,
            Rule::Every {
                microseconds,
                anchor,
            } => next_multiple(*microseconds, *anchor, after)?,
        };
        self.ends_at.is_none_or(|ends| next <= ends).then_some(next)
    }

    /// The latest ticks from `first`, a tick, up to and with `until`, at most `count` of them, in order; and
    /// the one that comes after them.
    ///
    /// However many there are in between, only about so many are looked at: it is begun close to the end, and
    /// further back until there are enough.
    pub fn latest(&self, first: Timestamp, until: Timestamp, count: usize) -> Latest {
        let mut span = SignedDuration::from_mins(1);
        loop {
            let from = until.checked_sub(span).ok().filter(|from| *from > first);
            let mut ticks = Vec::new();
            let mut next = match from {
                Some(from) => self.next_after(from),
                None => Some(first),
            };
            while let Some(tick) = next.filter(|tick| *tick <= until) {
                ticks.push(tick);
                next = self.next_after(tick);
            }
            if ticks.len() >= count || from.is_none() {
                let spare = ticks.len().saturating_sub(count);
                let is_whole = from.is_none() && spare == 0;
                let ticks = ticks.split_off(spare);
                return Latest {
                    ticks,
                    next,
                    is_whole,
                };
            }
            span = span.checked_mul(4).unwrap_or(SignedDuration::MAX);
        }
    }

    /// In which zone the ticks are best shown.
    pub fn zone(&self) -> TimeZone {
        match &self.rule {
            Rule::Calendar(calendar) => calendar.zone.clone(),
            Rule::Every { .. } => TimeZone::UTC,
        }
    }
}

/// What [`Timing::latest`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latest {
    /// In order.
    pub ticks: Vec<Timestamp>,
    /// The tick after them.
    pub next: Option<Timestamp>,
    /// Whether these are all that there were.
    pub is_whole: bool,
}

/// In words, as far as there are any.
impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Rule::Calendar(calendar) => f.pad(&calendar.cron.describe()),
            Rule::Every { microseconds, .. } => {
                let length = Duration::from_micros(microseconds.unsigned_abs());
                write!(f, "Every {}.", leasehold_core::time::short_length(length))
            }
        }
    }
}

fn read_zone(name: &str) -> Result<TimeZone, TimingError> {
    TimeZone::get(name).map_err(|_| {
        TimingError::new(
            format!("{:?} is no time zone", clip(name, 80)),
            "neither the machine's zone files nor the program's own have one of that name",
            "give the name of one, such as Europe/Berlin, America/New_York or UTC",
        )
    })
}

fn read_interval(text: &str) -> Result<i64, TimingError> {
    let length = text.trim().parse::<SignedDuration>().map_err(|_| {
        TimingError::new(
            format!("{:?} is no length of time", clip(text, 80)),
            "it does not read as numbers with units",
            "write a number and a unit, as in @every 90s or @every 1h30m",
        )
    })?;
    let length = Duration::try_from(length).unwrap_or_default();
    if !(INTERVAL_MIN..=INTERVAL_MAX).contains(&length) {
        return Err(TimingError::new(
            format!("an interval of {:?} is out of range", clip(text, 80)),
            "anything from a second to a year is allowed",
            "give one from 1s to a year; for what is on the calendar, use cron",
        ));
    }
    i64::try_from(length.as_micros()).map_err(|_| {
        TimingError::new(
            "the interval is too long",
            "a year is allowed",
            "give a shorter one",
        )
    })
}

fn next_multiple(microseconds: i64, anchor: Timestamp, after: Timestamp) -> Option<Timestamp> {
    let since = after
        .as_microsecond()
        .checked_sub(anchor.as_microsecond())?;
    // An anchor of a part of a microsecond counts as its whole one, as stores keep it.
    let passed = since.div_euclid(microseconds);
    let next = passed.checked_add(1)?.checked_mul(microseconds)?;
    Timestamp::from_microsecond(anchor.as_microsecond().checked_add(next)?).ok()
}

impl Calendar {
    fn parse(expression: &str, zone: TimeZone) -> Result<Self, TimingError> {
        let refuse = |why: &str| {
            let expression = clip(expression, 80);
            TimingError::new(format!("{expression:?} is no schedule"), why, FORM)
        };
        let expression = expression.trim();
        let spelled = match expression.to_ascii_lowercase().as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            nickname if nickname.starts_with('@') => {
                return Err(refuse("there is no such nickname"));
            }
            _ => expression,
        };
        let fields: Vec<&str> = spelled.split_whitespace().collect();
        let &[minute, hour, ..] = fields.as_slice() else {
            return Err(refuse("it has fewer than five fields"));
        };
        if fields.len() != 5 {
            return Err(refuse(&format!("it has {} fields, not five", fields.len())));
        }
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser
            .parse(spelled)
            .map_err(|error| refuse(error.to_string().trim_end_matches('.')))?;
        let mut times = Vec::new();
        for hour in cron.pattern.hours.values() {
            for minute in cron.pattern.minutes.values() {
                let time = i8::try_from(hour)
                    .ok()
                    .zip(i8::try_from(minute).ok())
                    .and_then(|(hour, minute)| Time::new(hour, minute, 0, 0).ok());
                times.extend(time);
            }
        }
        Ok(Self {
            is_fixed: !minute.starts_with('*') && !hour.starts_with('*'),
            cron,
            zone,
            times,
        })
    }

    fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let begin = self.zone.to_datetime(after);
        // A change of the clocks at midnight may bring what belongs to the day before.
        let earliest = begin.checked_sub(CHANGE_MAX).ok()?;
        let mut day = earliest.date();
        for _ in 0..DAYS_AHEAD_MAX {
            let tomorrow = day.tomorrow().ok();
            if self.is_on(day)
                && let Some(tick) = self.first_on(day, earliest, after)
            {
                // An hour that comes twice around midnight: the day after may have begun within it.
                let other = tomorrow
                    .filter(|day| self.is_on(*day))
                    .and_then(|day| self.first_on(day, earliest, after));
                return Some(other.map_or(tick, |other| other.min(tick)));
            }
            day = tomorrow?;
        }
        None
    }

    /// Whether the expression has ticks on that day.
    fn is_on(&self, day: Date) -> bool {
        let (year, month) = (i32::from(day.year()), u32::from(day.month().unsigned_abs()));
        let since_sunday = day.weekday().to_sunday_zero_offset();
        let weekday = Weekday::from_days_from_sunday(u32::from(since_sunday.unsigned_abs()));
        let pattern = &self.cron.pattern;
        let is_month = pattern.month_match(month).unwrap_or(false);
        let day = u32::from(day.day().unsigned_abs());
        is_month
            && pattern
                .day_match(year, month, day, weekday)
                .unwrap_or(false)
    }

    /// The first tick of the day that comes after the instant.
    fn first_on(&self, day: Date, earliest: DateTime, after: Timestamp) -> Option<Timestamp> {
        let mut first: Option<Timestamp> = None;
        for time in &self.times {
            let at = day.to_datetime(*time);
            if at < earliest {
                continue;
            }
            let (ticks, is_plain) = self.instants(at);
            let later = ticks.into_iter().flatten().filter(|tick| *tick > after);
            first = first.into_iter().chain(later).min();
            if is_plain && first.is_some() {
                // Times that come once come in their order, and after all that come twice before them.
                break;
            }
        }
        first
    }

    /// The ticks of a time of day, and whether it simply comes once.
    fn instants(&self, at: DateTime) -> ([Option<Timestamp>; 2], bool) {
        let place = self.zone.to_ambiguous_timestamp(at);
        match place.offset() {
            AmbiguousOffset::Unambiguous { .. } => ([place.unambiguous().ok(), None], true),
            AmbiguousOffset::Fold { .. } if self.is_fixed => ([place.earlier().ok(), None], false),
            AmbiguousOffset::Fold { before, after } => {
                let of = |offset: jiff::tz::Offset| offset.to_timestamp(at).ok();
                ([of(before), of(after)], false)
            }
            AmbiguousOffset::Gap { .. } if self.is_fixed => {
                // Taken by the clock from before the gap, the time lies after the change: the change itself
                // is the last one before it.
                let beyond = place.later().ok();
                let change = beyond.and_then(|beyond| {
                    let just_after = beyond.checked_add(1.nanosecond()).ok()?;
                    self.zone.preceding(just_after).next()
                });
                ([change.map(|change| change.timestamp()), None], false)
            }
            AmbiguousOffset::Gap { .. } => ([None, None], false),
        }
    }
}

#[cfg(test)]
mod tests;
