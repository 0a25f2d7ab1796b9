//! `skopos insight ls|show|explain`: values computed from facts, with their formulas and inputs.

mod shown;
mod ls;
mod show;
mod explain;

use clap::{Args, Subcommand};
use std::process::ExitCode;

use skopos_term::Failure;
use skopos_term::Global;

#[derive(Debug, Args)]
pub(crate) struct InsightArgs {
    #[command(subcommand)]
    pub(crate) verb: InsightVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InsightVerb {
    /// List insights, each with its value or the reason why it is unknown
    #[command(before_help = "Example: skopos insight ls")]
    Ls {
        /// Pattern: `*` within a segment, `**` over segments; the node may be left out
        pattern: Option<String>,
    },
    /// Show an insight with its formula and the present values of its inputs
    #[command(before_help = "Example: skopos insight show interference_factor_ratio")]
    Show {
        /// Name such as msca, a topic or a pattern
        name: String,
    },
    /// Trace an insight back to its facts and their sources
    #[command(before_help = "Example: skopos insight explain 'tier_remaining_*'")]
    Explain {
        /// Name such as msca, a topic or a pattern
        name: String,
    },
}

pub(crate) fn run(global: &Global, args: &InsightArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        InsightVerb::Ls { pattern } => ls::run(global, pattern.as_deref()),
        InsightVerb::Show { name } => show::run(global, name),
        InsightVerb::Explain { name } => explain::run(global, name),
    }
}
