use serde::Deserialize;

/// A digest for tags.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Auth {
    /// HMAC-SHA-1-96.
    #[serde(rename = "sha1")]
    Sha1,
    /// HMAC-SHA-256-192.
    #[serde(rename = "sha256")]
    Sha256,
}
