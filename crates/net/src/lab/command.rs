//! Runs programs of the system.

use std::process::{Command, Output};

use crate::Error;

/// Runs a program that must succeed.
pub(super) fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    finished(program, words, Command::new(program).args(words).output()).map(drop)
}

/// Returns the output of a program that succeeded.
///
/// # Errors
/// The program did not start, or failed: its own message is the cause.
pub(super) fn finished(
    program: &str,
    words: &[&str],
    output: std::io::Result<Output>,
) -> Result<Output, Error> {
    let doing = format!("run {program} {}", words.join(" "));
    let output = output.map_err(Error::system(doing.clone()))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = if said.is_empty() { output.status.to_string() } else { said };
    Err(Error::system(doing)(std::io::Error::other(why)))
}
