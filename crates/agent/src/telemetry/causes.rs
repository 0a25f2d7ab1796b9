//! Errors of libraries as one line.

/// Returns an error with its causes.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_causes(source)),
        None => error.to_string(),
    }
}
