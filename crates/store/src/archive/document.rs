//! The document of a report, as a file has it and as the archive keeps it.

use sha2::{Digest as _, Sha256};
use skopos_model::task::{SUMMARY_VERSION, Summary};

/// The longest document. A report with ten thousand processes has 3 MB.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 64 << 20;

/// The field that every document of Skopos has.
#[derive(serde::Deserialize)]
pub(super) struct Versioned {
    pub(super) version: u32,
}

/// Reads a report, or returns the reason for which the bytes are not a report.
pub(super) fn report(bytes: &[u8]) -> Result<Summary, String> {
    let versioned: Versioned =
        serde_json::from_slice(bytes).map_err(|e| format!("not a report of a task: {e}"))?;
    if versioned.version != SUMMARY_VERSION {
        return Err(format!(
            "a report of version {}, and this program knows {SUMMARY_VERSION}",
            versioned.version
        ));
    }
    let summary =
        serde_json::from_slice(bytes).map_err(|e| format!("not a report of a task: {e}"))?;
    sound(summary)
}

/// Returns the report, unless its values are impossible.
pub(super) fn sound(summary: Summary) -> Result<Summary, String> {
    if summary.task.class.is_empty() {
        return Err("a report without a class".to_owned());
    }
    if summary.end_seconds < summary.start_seconds {
        return Err("it ends before it starts".to_owned());
    }
    let wrong = |value: Option<f64>| value.is_some_and(|v| !v.is_finite() || v < 0.0);
    if let Some((name, reading)) = summary.resources.iter().find(|(_, r)| wrong(r.value)) {
        return Err(format!("`{name}` is {}", reading.value.unwrap_or_default()));
    }
    Ok(summary)
}

/// Returns the hash by which the archive knows a report: SHA-256 of its document.
pub(super) fn hash(document: &str) -> [u8; 32] {
    Sha256::digest(document.as_bytes()).into()
}
