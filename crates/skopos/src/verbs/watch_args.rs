//! The options of `skopos watch`.

use std::time::Duration;

use clap::Args;
use skopos_model::duration;

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Topics or patterns: `*` within a segment, `**` over segments; the node may be left out
    #[arg(required_unless_present = "sql", value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    /// SQL statement to ask instead, again after each change of its inputs; print the new rows
    #[arg(long, value_name = "STATEMENT", conflicts_with = "patterns")]
    pub(crate) sql: Option<String>,
    /// Shortest time between two answers [default: 100ms; 1s for a statement about ages or the time of day]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "sql", allow_hyphen_values = true)]
    pub(crate) every: Option<Duration>,
    /// Stop after this many changes; the first answer of a statement counts
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) run_for: Option<Duration>,
}
