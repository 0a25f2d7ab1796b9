//! The error of an import.

/// The reason why a text cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The text is not JSON, or ends in the middle.
    #[error("the text is not JSON")]
    Json(#[source] serde_json::Error),
    /// The text contains no report.
    #[error("the text contains no report of {0}")]
    Empty(&'static str),
    /// A report lacks a field that every report has.
    #[error("report {report}: the field `{field}` is missing or invalid")]
    Field {
        /// The number of the report in the file, from 1 on.
        report: usize,
        /// The tool's name of the field.
        field: &'static str,
    },
    /// A report ends in the middle.
    #[error("report {0} is cut off")]
    Truncated(usize),
}
