//! Errors of aya, in one line.

use std::error::Error;
use std::io;

/// Joins an error and its causes in one line, with the kernel's error last, whose kind it keeps. The log of
/// the verifier is left out.
pub fn with_causes(error: impl Error + 'static) -> io::Error {
    let mut text = String::new();
    let mut kind = io::ErrorKind::Other;
    let mut next: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            kind = io.kind();
        }
        let line = cause.to_string();
        let line = line.lines().next().unwrap_or_default();
        if !text.contains(line) {
            text = if text.is_empty() { line.to_owned() } else { format!("{text}: {line}") };
        }
        next = cause.source();
    }
    io::Error::new(kind, text)
}
