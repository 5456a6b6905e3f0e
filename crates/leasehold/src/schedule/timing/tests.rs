//! Ticks over the changes of the clocks, of every form of expression.

use proptest::prelude::*;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn timing(expression: &str, zone: &str) -> Timing {
    Timing::parse(expression, zone, None, None).unwrap()
}

/// The next ticks after an instant, as the clocks of the zone show them.
fn ticks(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let timing = timing(expression, zone);
    let mut last = at(after);
    let mut shown = Vec::new();
    for _ in 0..count {
        last = timing.next_after(last).unwrap();
        let zoned = jiff::ZonedDateTime::new(last, timing.zone());
        shown.push(zoned.strftime("%m-%d %H:%M %:z").to_string());
    }
    shown
}

#[test]
fn five_fields_are_read_as_cron_reads_them() {
    let zone = "UTC";
    let from = "2026-02-27T10:07:30Z";
    for (expression, expected) in [
        ("* * * * *", ["02-27 10:08 +00:00", "02-27 10:09 +00:00"]),
        ("*/15 * * * *", ["02-27 10:15 +00:00", "02-27 10:30 +00:00"]),
        (
            "5,50 9-11 * * *",
            ["02-27 10:50 +00:00", "02-27 11:05 +00:00"],
        ),
        (
            "0 3 * * MON-FRI",
            ["03-02 03:00 +00:00", "03-03 03:00 +00:00"],
        ),
        (
            "0 0 1 JAN,jul *",
            ["07-01 00:00 +00:00", "01-01 00:00 +00:00"],
        ),
        // Either of two days, if both are named.
        ("0 0 3 * 7", ["03-01 00:00 +00:00", "03-03 00:00 +00:00"]),
        ("0 0 L * *", ["02-28 00:00 +00:00", "03-31 00:00 +00:00"]),
        ("0 0 * * 1#2", ["03-09 00:00 +00:00", "04-13 00:00 +00:00"]),
        ("@hourly", ["02-27 11:00 +00:00", "02-27 12:00 +00:00"]),
        ("@daily", ["02-28 00:00 +00:00", "03-01 00:00 +00:00"]),
        ("@midnight", ["02-28 00:00 +00:00", "03-01 00:00 +00:00"]),
        ("@weekly", ["03-01 00:00 +00:00", "03-08 00:00 +00:00"]),
        ("@monthly", ["03-01 00:00 +00:00", "04-01 00:00 +00:00"]),
        ("@yearly", ["01-01 00:00 +00:00", "01-01 00:00 +00:00"]),
        ("@every 90s", ["02-27 10:09 +00:00", "02-27 10:10 +00:00"]),
    ] {
        assert_eq!(ticks(expression, zone, from, 2), expected, "{expression}");
    }
}

#[test]
fn a_zone_is_the_clock_that_is_looked_at() {
    let shown = ticks("0 9 * * *", "Asia/Tokyo", "2026-05-01T00:00:00Z", 2);
    assert_eq!(shown, ["05-02 09:00 +09:00", "05-03 09:00 +09:00"]);
    let across = ticks("0 9 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2);
    assert_eq!(across, ["03-28 09:00 +01:00", "03-29 09:00 +02:00"]);
}

/// On 2026-03-29 the clocks of Berlin go from 2:00 to 3:00.
#[test]
fn a_time_of_day_in_a_gap_comes_right_after_it() {
    let zone = "Europe/Berlin";
    let from = "2026-03-28T12:00:00Z";
    for expression in ["30 2 * * *", "0 2 * * *", "59 2 * * *"] {
        let shown = ticks(expression, zone, from, 2);
        assert_eq!(shown[0], "03-29 03:00 +02:00", "{expression}");
        assert!(shown[1].starts_with("03-30 02:"), "{shown:?}");
    }
    // Several in one gap, and one at its end, are one tick.
    let shown = ticks("0,30 2,3 * * *", zone, from, 3);
    let expected = [
        "03-29 03:00 +02:00",
        "03-29 03:30 +02:00",
        "03-30 02:00 +02:00",
    ];
    assert_eq!(shown, expected);
}

/// On 2026-10-25 the clocks of Berlin go from 3:00 back to 2:00.
#[test]
fn a_time_of_day_that_comes_twice_counts_the_first_time() {
    let zone = "Europe/Berlin";
    let from = "2026-10-24T12:00:00Z";
    let shown = ticks("30 2 * * *", zone, from, 2);
    assert_eq!(shown, ["10-25 02:30 +02:00", "10-26 02:30 +01:00"]);
    let shown = ticks("30 2,14 * * *", zone, from, 3);
    let expected = [
        "10-24 14:30 +02:00",
        "10-25 02:30 +02:00",
        "10-25 14:30 +01:00",
    ];
    assert_eq!(shown, expected);
    // Also for whoever looks from in between.
    let shown = ticks("30 2 * * *", zone, "2026-10-25T00:45:00Z", 1);
    assert_eq!(shown, ["10-26 02:30 +01:00"]);
}

#[test]
fn an_expression_with_a_star_in_its_time_goes_by_the_minutes_that_pass() {
    let zone = "Europe/Berlin";
    let shown = ticks("*/30 * * * *", zone, "2026-03-29T00:15:00Z", 3);
    let expected = [
        "03-29 01:30 +01:00",
        "03-29 03:00 +02:00",
        "03-29 03:30 +02:00",
    ];
    assert_eq!(shown, expected);
    let shown = ticks("*/30 * * * *", zone, "2026-10-24T23:45:00Z", 5);
    let expected = [
        "10-25 02:00 +02:00",
        "10-25 02:30 +02:00",
        "10-25 02:00 +01:00",
        "10-25 02:30 +01:00",
        "10-25 03:00 +01:00",
    ];
    assert_eq!(shown, expected);
    let shown = ticks("*/20 2 * * *", zone, "2026-03-28T12:00:00Z", 1);
    assert_eq!(shown, ["03-30 02:00 +02:00"], "no such hour on the 29th");
    let shown = ticks("0 * * * *", zone, "2026-10-24T23:30:00Z", 3);
    let expected = [
        "10-25 02:00 +02:00",
        "10-25 02:00 +01:00",
        "10-25 03:00 +01:00",
    ];
    assert_eq!(shown, expected);
}

/// Clocks change at midnight there, and in 2011 a whole day was left out.
#[test]
fn changes_at_midnight_and_across_the_date_line_lose_no_tick() {
    let shown = ticks("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00:00Z", 2);
    assert_eq!(shown, ["04-24 01:00 +03:00", "04-25 00:00 +03:00"]);
    // 2026-10-29 24:00 becomes 23:00: the last hour of the day comes twice.
    let shown = ticks("30 23 * * *", "Africa/Cairo", "2026-10-29T12:00:00Z", 2);
    assert_eq!(shown, ["10-29 23:30 +03:00", "10-30 23:30 +02:00"]);
    let shown = ticks("30 23,0 * * *", "Africa/Cairo", "2026-10-29T12:00:00Z", 3);
    let expected = [
        "10-29 23:30 +03:00",
        "10-30 00:30 +02:00",
        "10-30 23:30 +02:00",
    ];
    assert_eq!(shown, expected);
    let shown = ticks("0 12 * * *", "Pacific/Apia", "2011-12-29T20:00:00Z", 3);
    let expected = [
        "12-29 12:00 -10:00",
        "12-31 00:00 +14:00",
        "12-31 12:00 +14:00",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn an_interval_is_counted_from_its_start_and_never_drifts() {
    let starts = at("2026-01-01T00:00:07.5Z");
    let timing = Timing::parse("@every 7m", "UTC", Some(starts), None).unwrap();
    assert_eq!(timing.next_after(at("2020-01-01T00:00:00Z")), Some(starts));
    assert_eq!(
        timing.next_after(starts),
        Some(at("2026-01-01T00:07:07.5Z"))
    );
    let late = at("2026-01-01T01:00:00Z");
    assert_eq!(timing.next_after(late), Some(at("2026-01-01T01:03:07.5Z")));
    let plain = Timing::parse("@every 15m", "UTC", None, None).unwrap();
    let next = plain.next_after(at("2026-01-01T10:07:00Z"));
    assert_eq!(next, Some(at("2026-01-01T10:15:00Z")));
}

#[test]
fn there_is_no_tick_before_the_start_nor_after_the_end() {
    let (starts, ends) = (at("2026-01-05T00:00:00Z"), at("2026-01-06T00:00:00Z"));
    let timing = Timing::parse("@daily", "UTC", Some(starts), Some(ends)).unwrap();
    assert_eq!(timing.next_after(at("2026-01-01T00:00:00Z")), Some(starts));
    assert_eq!(timing.next_after(starts), Some(ends));
    assert_eq!(timing.next_after(ends), None);
    assert!(Timing::parse("@daily", "UTC", Some(ends), Some(starts)).is_err());
}

#[test]
fn what_says_nothing_is_refused_with_what_would_do() {
    for (expression, zone, told) in [
        ("", "UTC", "fewer than five fields"),
        ("* * * *", "UTC", "it has 4 fields, not five"),
        ("0 * * * * *", "UTC", "it has 6 fields, not five"),
        ("60 * * * *", "UTC", "is no schedule"),
        ("* 24 * * *", "UTC", "is no schedule"),
        ("a * * * *", "UTC", "is no schedule"),
        ("@reboot", "UTC", "no such nickname"),
        ("0 0 30 2 *", "UTC", "never comes"),
        ("@every", "UTC", "no such nickname"),
        ("@every soon", "UTC", "no length of time"),
        ("@every 10ms", "UTC", "out of range"),
        ("@every -5m", "UTC", "out of range"),
        ("@every 9000h", "UTC", "out of range"),
        ("@daily", "Mars/Olympus", "is no time zone"),
    ] {
        let refused = Timing::parse(expression, zone, None, None).unwrap_err();
        assert!(
            refused.to_string().contains(told),
            "{expression:?}: {refused}"
        );
        assert!(!refused.why().is_empty() && !refused.remedy().is_empty());
    }
}

#[test]
fn the_latest_ticks_are_found_without_walking_through_all_of_them() {
    let every = timing("@every 1s", "UTC");
    let (first, until) = (at("1980-01-01T00:00:00Z"), at("2026-01-01T00:00:00.5Z"));
    let latest = every.latest(first, until, 2);
    let expected = [at("2025-12-31T23:59:59Z"), at("2026-01-01T00:00:00Z")];
    assert_eq!(latest.ticks, expected);
    assert_eq!(latest.next, Some(at("2026-01-01T00:00:01Z")));
    assert!(!latest.is_whole);
    let yearly = timing("@yearly", "UTC");
    let latest = yearly.latest(at("2020-01-01T00:00:00Z"), until, 100);
    assert_eq!(latest.ticks.len(), 7);
    assert!(latest.is_whole);
}

#[test]
fn what_an_interval_is_called_is_read_back() {
    for length in [Duration::from_secs(90), Duration::from_millis(1_500)] {
        let timing = timing(&Timing::every(length), "UTC");
        let next = timing.next_after(Timestamp::UNIX_EPOCH).unwrap();
        let after = next.duration_since(Timestamp::UNIX_EPOCH);
        assert_eq!(after.unsigned_abs(), length);
    }
}

/// The same by looking at every minute, for what goes by the minutes that pass.
fn minute_by_minute(calendar: &Calendar, after: Timestamp) -> Timestamp {
    let minute = SignedDuration::from_mins(1);
    let mut at = after.checked_add(minute).unwrap();
    let into = at.as_second().rem_euclid(60);
    at = at.checked_sub(SignedDuration::from_secs(into)).unwrap();
    loop {
        let clock = calendar.zone.to_datetime(at);
        let is_time = calendar.times.contains(&clock.time());
        if is_time && calendar.is_on(clock.date()) {
            return at;
        }
        at = at.checked_add(minute).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_star_finds_the_same_as_looking_at_every_minute(
        seconds in 1_767_225_600_i64..1_830_297_600,
        expression in prop::sample::select(vec!["*/7 * * * *", "0 * * * *", "13 */5 * * *", "*/20 2,23 * * *", "* * * * 0"]),
        zone in prop::sample::select(vec!["Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu"]),
    ) {
        let after = Timestamp::from_second(seconds).unwrap();
        let timing = timing(expression, zone);
        let Rule::Calendar(calendar) = &timing.rule else { panic!() };
        prop_assert_eq!(timing.next_after(after), Some(minute_by_minute(calendar, after)));
    }

    #[test]
    fn a_time_of_day_has_one_tick_on_every_day(
        seconds in 1_767_225_600_i64..1_830_297_600,
        hour in 0_u8..24,
        minute in 0_u8..60,
        zone in prop::sample::select(vec!["Europe/Berlin", "Africa/Cairo", "Australia/Lord_Howe", "America/St_Johns"]),
    ) {
        let timing = timing(&format!("{minute} {hour} * * *"), zone);
        let mut last = timing.next_after(Timestamp::from_second(seconds).unwrap()).unwrap();
        for _ in 0..400 {
            let next = timing.next_after(last).unwrap();
            let day = |tick: Timestamp| timing.zone().to_datetime(tick).date();
            prop_assert_eq!(day(last).tomorrow().unwrap(), day(next));
            last = next;
        }
    }
}
