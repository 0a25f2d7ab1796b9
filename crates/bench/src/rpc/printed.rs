//! Programs that measure and print their result as JSON.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value as Json;

use crate::child::finish;
use crate::report::Figure;

/// The longest time of one program: the overhead of the service takes twenty minutes in full, beside OpenTelemetry.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

/// Runs a program that prints JSON.
pub(super) fn printed(program: &Path, words: &[String], folder: &Path) -> Result<Json, String> {
    let text = finish(Command::new(program).args(words), folder, PATIENCE)?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", program.display()))
}

/// Returns the number at a pointer of RFC 6901.
pub(super) fn number(json: &Json, pointer: &str) -> Figure {
    let found = json.pointer(pointer).and_then(Json::as_f64);
    found.map_or_else(|| Figure::Unknown(format!("no number at {pointer}")), Figure::Known)
}

/// Returns the numbers of the rounds at a pointer.
pub(super) fn rounds(json: &Json, pointer: &str) -> Vec<f64> {
    let all = json.pointer(pointer).and_then(Json::as_array);
    all.map_or_else(Vec::new, |all| all.iter().filter_map(Json::as_f64).collect())
}
