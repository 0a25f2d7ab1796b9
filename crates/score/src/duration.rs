//! Durations in configuration files: text such as `"10s"`, as on the command line, or a number of
//! seconds.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// Deserializes an optional duration; for `#[serde(default, deserialize_with =
/// "skopos_score::duration::optional")]`.
///
/// # Errors
/// Fails if the value is neither a number of seconds nor a text that
/// [`skopos_model::duration::parse`] accepts.
pub fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    from.deserialize_any(Reader).map(Some)
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"10s\", or a number of seconds")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        skopos_model::duration::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Duration, E> {
        let invalid = || E::custom(format!("{seconds} seconds is not a duration"));
        u64::try_from(seconds).map(Duration::from_secs).map_err(|_| invalid())
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(Duration::from_secs(seconds))
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
        Duration::try_from_secs_f64(seconds)
            .map_err(|e| E::custom(format!("{seconds} seconds is not a duration: {e}")))
    }
}
