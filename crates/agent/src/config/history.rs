//! The table `[history]`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use skopos_model::task::parse_bytes;

/// History on disk: `[history]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// Path of the folder. Without it and without `--history`, history is not kept.
    pub dir: Option<PathBuf>,
    /// Largest size of the folder.
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: Option<u64>,
    /// Age after which samples are removed.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub max_age: Option<Duration>,
    /// Time between two parts.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub seal_every: Option<Duration>,
}

impl HistoryConfig {
    /// Returns the configured limits, with defaults for the others.
    pub fn limits(&self) -> skopos_store::history::Limits {
        let defaults = skopos_store::history::Limits::default();
        skopos_store::history::Limits {
            max_bytes: self.max_bytes.unwrap_or(defaults.max_bytes),
            max_age: self.max_age.unwrap_or(defaults.max_age),
            seal_every: self.seal_every.unwrap_or(defaults.seal_every),
        }
    }
}

/// Reads `"2GiB"`, or a number of bytes.
///
/// # Errors
/// The text is not a size.
pub fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as \"2GiB\", or a number of bytes")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            let size = parse_bytes(text).filter(|size| (0.0..=1e18).contains(size));
            size.map(|size| size as u64).ok_or_else(|| E::custom(format!("`{text}` is not a size")))
        }
        fn visit_i64<E: Error>(self, size: i64) -> Result<u64, E> {
            u64::try_from(size).map_err(|_| E::custom(format!("{size} is not a number of bytes")))
        }
    }
    from.deserialize_any(Bytes).map(Some)
}
