use proptest::prelude::*;

use super::{CachedCalendar, Calendar, CalendarPeriod};

const S: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * S;
const DAY: u64 = 24 * HOUR;

fn calendar(text: &str) -> Calendar {
    text.parse().unwrap()
}

/// A time as RFC 3339 writes it.
fn at(text: &str) -> u64 {
    let time: jiff::Timestamp = text.parse().unwrap();
    u64::try_from(time.as_nanosecond()).unwrap()
}

#[track_caller]
fn check(text: &str, now: &str, index: u64, [starts, ends]: [&str; 2]) {
    let expected = CalendarPeriod { index, starts_ns: at(starts), ends_ns: at(ends) };
    let calendar = calendar(text);
    for now_ns in [at(now), at(starts), at(ends) - 1] {
        assert_eq!(calendar.period_at(now_ns), expected, "{text} at {now}");
    }
    let next = calendar.period_at(at(ends));
    assert!(next.index > index && next.starts_ns == at(ends), "{text} after {now}: {next:?}");
}

#[test]
fn plain_periods() {
    let now = "2026-11-15T14:15:16.5Z";
    check("minute", now, 29_912_535, ["2026-11-15T14:15Z", "2026-11-15T14:16Z"]);
    check("hour", now, 498_542, ["2026-11-15T14:00Z", "2026-11-15T15:00Z"]);
    check("day", now, 20_772, ["2026-11-15T00:00Z", "2026-11-16T00:00Z"]);
    check("week", now, 2_967, ["2026-11-09T00:00Z", "2026-11-16T00:00Z"]);
    check("month", now, 682, ["2026-11-01T00:00Z", "2026-12-01T00:00Z"]);
    check("year", now, 56, ["2026-01-01T00:00Z", "2027-01-01T00:00Z"]);
}

#[test]
fn months_have_their_length_in_the_calendar() {
    let february = |year| calendar("month").period_at(at(&format!("{year}-02-10T00:00Z")));
    for (year, days) in [(2000, 29), (2023, 28), (2024, 29), (2100, 28)] {
        let period = february(year);
        assert_eq!(period.ends_ns - period.starts_ns, days * DAY, "{year}");
    }
    let leap_day = ["2024-02-29T00:00Z", "2024-03-01T00:00Z"];
    check("day", "2024-02-29T12:00Z", 19_782, leap_day);
}

#[test]
fn a_year_ends_by_the_clocks_of_its_zone() {
    let helsinki = ["2025-12-31T22:00Z", "2026-12-31T22:00Z"];
    check("year in Europe/Helsinki", "2026-12-31T21:59:59Z", 56, helsinki);
    let kiritimati = ["2025-12-31T10:00Z", "2026-12-31T10:00Z"];
    check("year in Pacific/Kiritimati", "2026-12-31T09:59Z", 56, kiritimati);
    let new_york = ["2026-12-01T05:00Z", "2027-01-01T05:00Z"];
    check("month in America/New_York", "2027-01-01T04:59Z", 683, new_york);
}

#[test]
fn a_week_runs_from_monday_across_the_new_year() {
    // 2026-W53 and 2025-W01.
    check("week", "2027-01-01T00:00Z", 2_974, ["2026-12-28T00:00Z", "2027-01-04T00:00Z"]);
    check("week", "2024-12-31T00:00Z", 2_870, ["2024-12-30T00:00Z", "2025-01-06T00:00Z"]);
}

#[test]
fn a_day_has_23_or_25_hours_where_the_clocks_change() {
    let text = "day in Europe/Helsinki";
    check(text, "2026-03-29T12:00Z", 20_541, ["2026-03-28T22:00Z", "2026-03-29T21:00Z"]);
    check(text, "2026-10-25T12:00Z", 20_751, ["2026-10-24T21:00Z", "2026-10-25T22:00Z"]);
    let march = ["2026-02-28T22:00Z", "2026-03-31T21:00Z"];
    check("month in Europe/Helsinki", "2026-03-15T00:00Z", 674, march);
}

#[test]
fn a_day_without_midnight_begins_when_the_clocks_are_set() {
    let sao_paulo = ["2018-11-04T03:00Z", "2018-11-05T02:00Z"];
    check("day in America/Sao_Paulo", "2018-11-04T12:00Z", 17_839, sao_paulo);
    let beirut = ["2022-03-26T22:00Z", "2022-03-27T21:00Z"];
    check("day in Asia/Beirut", "2022-03-27T12:00Z", 19_078, beirut);
    // A month, too: Asuncion set its clocks at the first midnight of October.
    let asuncion = ["2017-10-01T04:00Z", "2017-11-01T03:00Z"];
    check("month in America/Asuncion", "2017-10-15T12:00Z", 573, asuncion);
}

#[test]
fn clocks_set_back_past_midnight_do_not_bring_the_old_day_back() {
    // At 00:01 on the 7th the clocks of St John's were set back to 23:01 on the 6th.
    let text = "day in America/St_Johns";
    check(text, "2010-11-07T03:00Z", 14_920, ["2010-11-07T02:30Z", "2010-11-08T03:30Z"]);
    // Without the minute: at 00:00, so the day that ends is the longer one.
    let text = "day in America/Sao_Paulo";
    check(text, "2018-02-18T02:30Z", 17_579, ["2018-02-17T02:00Z", "2018-02-18T03:00Z"]);
}

#[test]
fn a_skipped_date_leaves_its_number_out() {
    let text = "day in Pacific/Apia";
    check(text, "2011-12-30T00:00Z", 15_337, ["2011-12-29T10:00Z", "2011-12-30T10:00Z"]);
    check(text, "2011-12-30T12:00Z", 15_339, ["2011-12-30T10:00Z", "2011-12-31T10:00Z"]);
    // Enewetak and Kiritimati skipped one as well, the latter the last day of a year.
    let week = ["1994-12-26T10:00Z", "1995-01-01T10:00Z"];
    check("week in Pacific/Kiritimati", "1994-12-31T12:00Z", 1_304, week);
    let year = ["1994-12-31T10:00Z", "1995-12-31T10:00Z"];
    check("year in Pacific/Kiritimati", "1995-01-01T00:00Z", 25, year);
}

#[test]
fn an_hour_shown_twice_is_two_and_a_skipped_one_is_none() {
    let text = "hour in Europe/Helsinki";
    let hour = at("2026-10-25T00:00Z") / HOUR;
    check(text, "2026-10-25T00:30Z", hour, ["2026-10-25T00:00Z", "2026-10-25T01:00Z"]);
    check(text, "2026-10-25T01:30Z", hour + 1, ["2026-10-25T01:00Z", "2026-10-25T02:00Z"]);
    let hour = at("2026-03-29T00:00Z") / HOUR;
    check(text, "2026-03-29T00:30Z", hour, ["2026-03-29T00:00Z", "2026-03-29T01:00Z"]);
    check(text, "2026-03-29T01:30Z", hour + 1, ["2026-03-29T01:00Z", "2026-03-29T02:00Z"]);
}

#[test]
fn an_hour_begins_on_the_hour_of_its_zone() {
    let kolkata = ["2026-01-01T00:30Z", "2026-01-01T01:30Z"];
    check("hour in Asia/Kolkata", "2026-01-01T00:40Z", 490_897, kolkata);
    let kathmandu = ["2026-01-01T00:15Z", "2026-01-01T01:15Z"];
    check("hour in Asia/Kathmandu", "2026-01-01T00:40Z", 490_897, kathmandu);
    check(
        "minute in Asia/Kathmandu",
        "2026-01-01T00:40:30Z",
        29_453_800,
        ["2026-01-01T00:40Z", "2026-01-01T00:41Z"],
    );
    // Lord Howe's clocks go by half an hour: at 02:00 to 02:30, and back from 02:00 to 01:30.
    let spring = ["2026-10-03T14:30Z", "2026-10-03T16:00Z"];
    check("hour in Australia/Lord_Howe", "2026-10-03T15:45Z", 497_511, spring);
    let autumn = ["2026-04-04T15:00Z", "2026-04-04T15:30Z"];
    check("hour in Australia/Lord_Howe", "2026-04-04T15:15Z", 493_143, autumn);
}

#[test]
fn time_begins_with_period_zero() {
    let west = "day in America/New_York";
    let first = CalendarPeriod { index: 0, starts_ns: 0, ends_ns: at("1970-01-02T05:00Z") };
    assert_eq!(calendar(west).period_at(0), first);
    assert_eq!(calendar(west).period_at(first.ends_ns).index, 1);
    let east = CalendarPeriod { index: 0, starts_ns: 0, ends_ns: at("1970-01-04T15:00Z") };
    assert_eq!(calendar("week in Asia/Tokyo").period_at(0), east);
    for text in ["minute", "hour", "day", "month", "year"] {
        for zone in ["UTC", "Pacific/Kiritimati", "Pacific/Midway", "Africa/Monrovia"] {
            let period = calendar(&format!("{text} in {zone}")).period_at(0);
            assert_eq!((period.index, period.starts_ns), (0, 0), "{text} in {zone}");
        }
    }
}

#[test]
fn time_ends_in_2262() {
    let last = i64::MAX.unsigned_abs();
    for zone in ["UTC", "Europe/Helsinki", "America/Sao_Paulo", "Pacific/Kiritimati"] {
        for unit in ["minute", "hour", "day", "week", "month", "year"] {
            let calendar = calendar(&format!("{unit} in {zone}"));
            let period = calendar.period_at(last);
            assert!(period.starts_ns <= last && period.ends_ns > last, "{calendar}: {period:?}");
            assert_eq!(calendar.period_at(u64::MAX), period, "{calendar}");
            let cached = CachedCalendar::new(calendar);
            assert_eq!(cached.period_at(u64::MAX), period);
            assert_eq!(cached.period_at(last), period);
        }
    }
    assert_eq!(calendar("year").period_at(last).index, 292);
}

#[test]
fn calendar_text_round_trips() {
    for (text, back) in [
        ("day", "day"),
        ("week in UTC", "week"),
        ("month in Europe/Helsinki", "month in Europe/Helsinki"),
        (" hour  in europe/helsinki", "hour in Europe/Helsinki"),
        ("year in Etc/GMT-14", "year in Etc/GMT-14"),
    ] {
        assert_eq!(calendar(text).to_string(), back);
        assert_eq!(calendar(back), calendar(text));
    }
    assert_ne!(calendar("day in Europe/Helsinki"), calendar("day in Europe/Tallinn"));
}

#[test]
fn errors_say_what_is_possible() {
    let possible = "possible are minute, hour, day, week, month and year";
    let form = "is not a calendar; write a period, like `day`, or a period and a zone, \
                like `month in Europe/Helsinki`";
    for (text, error) in [
        ("fortnight", format!("`fortnight` is not a period of the calendar; {possible}")),
        (
            "months",
            format!("`months` is not a period of the calendar; did you mean `month`? {possible}"),
        ),
        (
            "Day in UTC",
            format!("`Day` is not a period of the calendar; did you mean `day`? {possible}"),
        ),
        ("", format!("`` {form}")),
        ("day Europe/Helsinki", format!("`day Europe/Helsinki` {form}")),
        ("day in", format!("`day in` {form}")),
        ("day in Europe / Helsinki", format!("`day in Europe / Helsinki` {form}")),
        (
            "day in Europe/Helsinky",
            "`Europe/Helsinky` is not a time zone; did you mean `Europe/Helsinki`?".to_owned(),
        ),
        (
            "day in Helsinki",
            "`Helsinki` is not a time zone; did you mean `Europe/Helsinki`?".to_owned(),
        ),
        (
            "day in Middle-Earth",
            "`Middle-Earth` is not a time zone; possible are names like `UTC` or \
             `Europe/Helsinki`"
                .to_owned(),
        ),
        (
            "day in Etc/Unknown",
            "`Etc/Unknown` is not a time zone; possible are names like `UTC` or `Europe/Helsinki`"
                .to_owned(),
        ),
    ] {
        assert_eq!(text.parse::<Calendar>().unwrap_err().to_string(), error);
    }
    let long = "day in ".to_owned() + &"x".repeat(100_000);
    assert!(long.parse::<Calendar>().unwrap_err().to_string().len() < 200);
}

#[test]
fn threads_on_both_sides_of_a_boundary_never_see_half_a_period() {
    let plain = calendar("day in Europe/Helsinki");
    let cached = CachedCalendar::new(plain.clone());
    let noon = at("2026-03-29T12:00Z");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (plain, cached) = (&plain, &cached);
            scope.spawn(move || {
                for turn in 0..20_000 {
                    let now = noon + DAY * ((turn / (thread + 1)) % 3);
                    let period = cached.period_at(now);
                    assert!(period.starts_ns <= now && now < period.ends_ns);
                    assert_eq!(period.index, 20_541 + (now - noon) / DAY);
                    if turn % 100 == 0 {
                        assert_eq!(period, plain.period_at(now));
                    }
                }
            });
        }
    });
}

/// Every change of the clocks that the database lists, in every zone.
#[test]
fn a_period_begins_when_the_clocks_first_show_it() {
    let until = jiff::Timestamp::from_second(2_200_000_000).unwrap();
    let mut changes = 0;
    for zone in jiff::tz::db().available() {
        for unit in ["hour", "day", "week", "month"] {
            let Ok(calendar) = format!("{unit} in {zone}").parse::<Calendar>() else { continue };
            let listed = calendar.zone.following(jiff::Timestamp::UNIX_EPOCH);
            for change in listed.take_while(|change| change.timestamp() < until) {
                let change_ns = u64::try_from(change.timestamp().as_nanosecond()).unwrap();
                let around = calendar.period_at(change_ns);
                assert!(around.starts_ns <= change_ns && change_ns < around.ends_ns, "{calendar}");
                let mut period = calendar.period_at(change_ns.saturating_sub(DAY));
                while period.starts_ns <= change_ns {
                    let (starts_s, index) = (period.ends_ns / S, period.index);
                    period = calendar.period_at(period.ends_ns);
                    let [shown, before] = [starts_s, starts_s - 1].map(|time_s| {
                        calendar.shown_at(time_s.cast_signed()).max(0).unsigned_abs()
                    });
                    assert_eq!(period.starts_ns, starts_s * S, "{calendar} {period:?}");
                    assert!(shown >= period.index && period.index > index, "{calendar} {period:?}");
                    assert!(before < period.index, "{calendar} {period:?}");
                }
                changes += 1;
            }
        }
    }
    assert!(changes > 50_000, "{changes}");
}

/// Any calendar of the database.
fn any_calendar() -> impl Strategy<Value = Calendar> {
    let zones: Vec<String> = jiff::tz::db().available().map(|zone| zone.to_string()).collect();
    let units = prop::sample::select(vec!["minute", "hour", "day", "week", "month", "year"]);
    (units, prop::sample::select(zones))
        .prop_filter_map("not a zone", |(unit, zone)| format!("{unit} in {zone}").parse().ok())
}

/// Half of them in the years for which the database lists the changes of the clocks.
fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![0..at("2038-01-01T00:00Z"), 0..=i64::MAX.unsigned_abs()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn periods_tile_time(calendar in any_calendar(), start in any_time(), steps in 1..30_u32) {
        let mut period = calendar.period_at(start);
        prop_assert!(period.starts_ns <= start && start < period.ends_ns);
        for _ in 0..steps {
            if period.ends_ns > i64::MAX.unsigned_abs() {
                break;
            }
            prop_assert_eq!(calendar.period_at(period.starts_ns), period);
            prop_assert_eq!(calendar.period_at(period.ends_ns - 1), period);
            let next = calendar.period_at(period.ends_ns);
            prop_assert!(next.index > period.index, "{calendar}: {period:?}, {next:?}");
            prop_assert_eq!(next.starts_ns, period.ends_ns, "{}", calendar);
            prop_assert!(next.ends_ns > next.starts_ns);
            period = next;
        }
    }

    /// Around every change of the clocks of a zone, against what the zone's clocks show.
    #[test]
    fn changes_of_the_clocks_are_survived(
        calendar in any_calendar(),
        change in any_time(),
        around in -200_000_i64..200_000,
    ) {
        let since = jiff::Timestamp::from_nanosecond(i128::from(change)).unwrap();
        let Some(change) = calendar.zone.following(since).next() else { return Ok(()) };
        let change_s = change.timestamp().as_second();
        let times = [change_s - 1, change_s, change_s + 1, change_s + around];
        let cached = CachedCalendar::new(calendar.clone());
        for now_s in times {
            let Ok(now) = u64::try_from(i128::from(now_s) * 1_000_000_000) else { continue };
            if now > i64::MAX.unsigned_abs() {
                continue;
            }
            let period = calendar.period_at(now);
            prop_assert!(period.starts_ns <= now && now < period.ends_ns);
            prop_assert!(period.index >= calendar.shown_at(now_s).max(0).unsigned_abs());
            prop_assert_eq!(cached.period_at(now), period);
            prop_assert_eq!(cached.period_at(now), period);
        }
    }

    #[test]
    fn later_times_never_have_smaller_numbers(calendar in any_calendar(), a in any_time(), b in any_time()) {
        let [a, b] = [a.min(b), a.max(b)].map(|time| calendar.period_at(time));
        prop_assert!(a.index <= b.index);
        prop_assert_eq!(a.index == b.index, a == b);
        prop_assert!(a == b || a.ends_ns <= b.starts_ns);
    }

    #[test]
    fn text_of_any_calendar_round_trips(calendar in any_calendar()) {
        prop_assert_eq!(calendar.to_string().parse(), Ok(calendar));
    }

    #[test]
    fn no_text_panics(text in "(day|month|)( in |)\\PC{0,40}") {
        let _ = text.parse::<Calendar>().map_err(|error| error.to_string());
    }
}
