//! Times as text, and arithmetic at both ends of the range.

use std::time::Duration;

use proptest::prelude::*;
use skopos_model::Timestamp;

/// Pairs from `date -u --date=@SECONDS`.
const KNOWN: [(i64, &str); 14] = [
    (0, "1970-01-01T00:00:00.000000000Z"),
    (-1, "1969-12-31T23:59:59.999999999Z"),
    (1, "1970-01-01T00:00:00.000000001Z"),
    (-62_000_000_000, "1969-12-31T23:58:58.000000000Z"),
    (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
    (951_868_799_999_999_999, "2000-02-29T23:59:59.999999999Z"),
    (951_868_800_000_000_000, "2000-03-01T00:00:00.000000000Z"),
    (-2_203_977_600_000_000_000, "1900-02-28T00:00:00.000000000Z"),
    (-2_203_891_200_000_000_000, "1900-03-01T00:00:00.000000000Z"),
    (1_000_000_000_000_000_000, "2001-09-09T01:46:40.000000000Z"),
    (2_147_483_647_000_000_000, "2038-01-19T03:14:07.000000000Z"),
    (4_107_542_399_000_000_000, "2100-02-28T23:59:59.000000000Z"),
    (i64::MAX, "2262-04-11T23:47:16.854775807Z"),
    (i64::MIN, "1677-09-21T00:12:43.145224192Z"),
];

#[test]
fn known_times() {
    for (nanos, text) in KNOWN {
        assert_eq!(Timestamp::from_nanos(nanos).to_string(), text);
    }
}

/// Compares every day in the range with days counted by the rules of the calendar.
#[test]
fn every_day_of_the_calendar() {
    const DAY: i64 = 86_400 * 1_000_000_000;
    // The first whole day, from the known times above.
    let (mut year, mut month, mut day) = (1677, 9, 22);
    let first = i64::MIN.div_euclid(DAY) + 1;
    for number in first..=i64::MAX / DAY {
        let text = Timestamp::from_nanos(number * DAY).to_string();
        assert_eq!(text, format!("{year:04}-{month:02}-{day:02}T00:00:00.000000000Z"));
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        day += 1;
        if day > days {
            (day, month) = (1, month + 1);
        }
        if month > 12 {
            (month, year) = (1, year + 1);
        }
    }
    assert_eq!((year, month, day), (2262, 4, 12));
}

proptest! {
    #![proptest_config(crate::cases(1_000))]

    /// The texts of two times sort like the times, within the range.
    #[test]
    fn text_keeps_the_order(a in any::<i64>(), b in any::<i64>()) {
        let (a, b) = (Timestamp::from_nanos(a), Timestamp::from_nanos(b));
        prop_assert_eq!(a.to_string().cmp(&b.to_string()), a.cmp(&b));
    }

    #[test]
    fn arithmetic_stops_at_both_ends(nanos in any::<i64>(), seconds in any::<u64>(), n in 0u32..1_000_000_000) {
        let (time, by) = (Timestamp::from_nanos(nanos), Duration::new(seconds, n));
        let wide = i128::try_from(by.as_nanos()).unwrap_or(i128::MAX);
        let clamp = |v: i128| v.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let later = clamp(i128::from(nanos).saturating_add(wide));
        prop_assert_eq!(time.saturating_add(by).as_nanos(), later);
        let earlier = clamp(i128::from(nanos).saturating_sub(wide));
        prop_assert_eq!(time.saturating_sub(by).as_nanos(), earlier);
    }

    #[test]
    fn since_is_never_negative(a in any::<i64>(), b in any::<i64>()) {
        let since = Timestamp::from_nanos(a).since(Timestamp::from_nanos(b));
        prop_assert_eq!(since.as_nanos(), (i128::from(a) - i128::from(b)).max(0) as u128);
    }
}
