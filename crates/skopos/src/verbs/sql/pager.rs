//! A program that shows an answer longer than the screen: `$PAGER`, or `less`.

use std::env;
use std::process::{Child, Command, Stdio};

use skopos_term::{Failure, Out};

/// Shows colours, does not wrap wide rows, leaves the rows on the screen, and ends at once if all fits.
const LESS: &str = "less -FRSX";

/// A pager that waits for its input.
pub(super) struct Pager {
    child: Child,
    out: Out,
}

impl Pager {
    /// Starts the pager; `None` if there is no shell to start it. Its output has the style of `out`.
    pub(super) fn start(out: &Out) -> Option<Self> {
        let wanted = env::var("PAGER").ok().filter(|pager| !pager.trim().is_empty());
        let program = wanted.unwrap_or_else(|| LESS.to_owned());
        let mut child =
            Command::new("sh").args(["-c", &program]).stdin(Stdio::piped()).spawn().ok()?;
        let input = child.stdin.take()?;
        Some(Self { child, out: out.redirected(Box::new(input)) })
    }

    /// Writes with `write`, and waits until the user leaves the pager.
    ///
    /// # Errors
    /// `write` failed. A user who leaves before the end closes the pipe, which is not a failure.
    pub(super) fn show(
        self,
        write: impl FnOnce(&mut Out) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self { mut child, mut out } = self;
        let written = write(&mut out);
        // The pager ends when its input does.
        drop(out);
        let _ = child.wait();
        written.or_else(|failure| if failure.is_quiet() { Ok(()) } else { Err(failure) })
    }
}
