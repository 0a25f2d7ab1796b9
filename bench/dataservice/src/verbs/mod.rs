//! The verbs of the program, a file each.

pub(crate) mod case;
pub(crate) mod cases;
pub(crate) mod figures;
pub(crate) mod server;
pub(crate) mod client;
pub(crate) mod overhead;
pub(crate) mod options;

use std::error::Error as _;
use std::io::Write;

use crate::{Error, Result};

/// Prints an error with its causes.
pub(crate) fn say_failure(error: &Error) {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(&format!("\n  {next}"));
        cause = next.source();
    }
    // Without standard error there is no place left to say it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints a line; a closed pipe is not a failure.
pub(crate) fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::System { doing: "write the result", source: error })
        }
        _ => Ok(()),
    }
}

/// Prints a value as JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|source| Error::Json { doing: "write the result", source })?;
    print(&text)
}
