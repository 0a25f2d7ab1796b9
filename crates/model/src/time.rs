use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since the UNIX epoch, 1970-01-01T00:00:00Z.
// Its methods are inlined: other crates call them per sample, and release builds have no link-time
// optimisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Makes a time of nanoseconds since the UNIX epoch.
    #[inline]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the UNIX epoch.
    #[inline]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Returns the time `duration` later; stops at the last representable time.
    #[must_use]
    #[inline]
    pub fn saturating_add(self, duration: Duration) -> Self {
        self.shifted(duration.as_nanos().cast_signed())
    }

    /// Returns the time `duration` earlier; stops at the first representable time.
    #[must_use]
    #[inline]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        self.shifted(-duration.as_nanos().cast_signed())
    }

    // No duration comes near the ends of an i128, so the sum is exact before it is cut.
    #[inline]
    fn shifted(self, nanos: i128) -> Self {
        let nanos = i128::from(self.0) + nanos;
        Self(nanos.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

/// RFC 3339 in UTC with nanoseconds: `2026-11-21T20:54:35.000000001Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(1_000_000_000);
        let nanos = self.0.rem_euclid(1_000_000_000);
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

/// Returns the proleptic Gregorian date of a day count since 1970-01-01 (the era method that the C++
/// standard library's `<chrono>` specifies for `year_month_day`).
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}
