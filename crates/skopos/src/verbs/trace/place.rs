//! The folder that `skopos trace` reads.

use std::path::PathBuf;

use clap::Args;
use skopos_rpc::Error;
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;
use skopos_term::format::printable;
use skopos_term::{Failure, Out, state, tell};

/// Names the trace to read.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Folder or file of the trace [default: that of the agent, `traces` in its folder of state]
    #[arg(long, short, value_name = "PATH", global = true)]
    trace: Option<PathBuf>,
}

impl Place {
    /// Returns the folder that the user named, or that of the agent.
    pub(super) fn path(&self) -> Result<PathBuf, Failure> {
        let path = self.trace.clone().or_else(state::traces);
        path.ok_or_else(|| {
            Failure::new("the folder of the agent's traces is not known: HOME is not set")
                .hint("name a folder: --trace DIR")
        })
    }

    /// Lists the traces there.
    pub(super) fn open(&self) -> Result<Folder, Failure> {
        let path = self.path()?;
        if self.trace.is_none() && !path.exists() {
            return Err(Failure::new("no agent has collected a trace here").hint(format!(
                "run `skopos up` beside a service that records its calls, or name a folder: --trace DIR \
                 ({} does not exist)",
                path.display()
            )));
        }
        Folder::open(&path).map_err(|e| failed(&e))
    }
}

/// Reads names and clocks of a trace, and says on standard error what it lacks.
pub(super) fn opened(folder: &Folder) -> Result<Trace<'_>, Failure> {
    let trace = Trace::open(folder).map_err(|e| failed(&e))?;
    for (what, count) in trace.counts().defects() {
        tell(format!("skopos: {count} {what}"));
    }
    Ok(trace)
}

/// Turns an error of the analysis into a failure. Its texts say what would be right.
pub(super) fn failed(error: &Error) -> Failure {
    // It repeats names that a user or a service chose.
    let failure = Failure::new(printable(&error.to_string()));
    match std::error::Error::source(error) {
        Some(cause) => failure.because(cause),
        None => failure,
    }
}

/// Writes a heading in bold.
pub(super) fn heading(out: &mut Out, text: &str) -> std::io::Result<()> {
    let text = out.bold(text);
    out.line(text)
}
