//! Reads reports of other tools as summaries, so that an archive can begin with the reports that a
//! site has.
//!
//! A number that a tool does not report is unknown, with the reason. A number that a tool is known to
//! report wrongly has a note, or is left out. The input is untrusted: no text of any length makes an
//! import fail other than with an [`ImportError`].

mod error;
mod imported;
pub mod kickstart;
mod record;
pub mod resource_monitor;
mod xml;
mod yaml;

use skopos_model::task::Summary;

pub use error::ImportError;

/// Reads the reports of the tool that wrote them: `resource_monitor` (JSON) or Kickstart (YAML or
/// XML).
///
/// # Errors
/// The first report that is wrong, and the reason.
pub fn import(text: &str) -> Result<Vec<Summary>, ImportError> {
    match text.trim_start().chars().next() {
        Some('{' | '[') => resource_monitor::import(text),
        _ => kickstart::import(text),
    }
}

#[cfg(test)]
mod tests;
