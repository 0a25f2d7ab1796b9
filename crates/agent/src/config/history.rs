use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use skopos_model::task::parse_bytes;

/// History on disk: `[history]`. A build without it checks this part all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistoryConfig {
    /// Where it is kept; nowhere unless it is said here or typed.
    pub dir: Option<PathBuf>,
    /// How much of it.
    #[serde(deserialize_with = "bytes")]
    pub max_bytes: Option<u64>,
    /// For how long.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub max_age: Option<Duration>,
    /// How often the log becomes a part.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub seal_every: Option<Duration>,
}

impl HistoryConfig {
    /// What was configured, and what is usual.
    pub fn limits(&self) -> skopos_store::history::Limits {
        let usual = skopos_store::history::Limits::default();
        skopos_store::history::Limits {
            max_bytes: self.max_bytes.unwrap_or(usual.max_bytes),
            max_age: self.max_age.unwrap_or(usual.max_age),
            seal_every: self.seal_every.unwrap_or(usual.seal_every),
        }
    }
}

/// `"2GiB"`, or a number of bytes.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = u64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as \"2GiB\", or a number of bytes")
        }
        fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
            let size = parse_bytes(text).filter(|size| (0.0..=1e18).contains(size));
            size.map(|size| size as u64).ok_or_else(|| E::custom(format!("`{text}` is no size")))
        }
        fn visit_i64<E: Error>(self, size: i64) -> Result<u64, E> {
            u64::try_from(size).map_err(|_| E::custom(format!("{size} bytes are no size")))
        }
    }
    from.deserialize_any(Bytes).map(Some)
}
