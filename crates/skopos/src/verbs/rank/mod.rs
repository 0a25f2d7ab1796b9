//! `skopos rank`: the order of candidates by the agent or from a hub, why it is so, and what another profile would have cost.

mod remote;
mod show;
mod report;
mod replay;

use clap::{Args, Subcommand};
use std::process::ExitCode;

use skopos_term::{Failure, Global};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_precedence_over_arg = true)]
pub(crate) struct RankArgs {
    #[command(flatten)]
    show: show::ShowArgs,
    #[command(subcommand)]
    verb: Option<RankVerb>,
}

#[derive(Debug, Subcommand)]
enum RankVerb {
    /// Report the outcome of a request that a candidate served, so that weights are learned
    #[command(before_help = "Example: skopos rank report --profile reads n02 0.0012")]
    Report(report::ReportArgs),
    /// Estimate what another profile would have cost on recorded requests
    #[command(
        before_help = "Example: skopos rank replay --recorded reads.jsonl --profile other.toml"
    )]
    Replay(replay::ReplayArgs),
}

pub(crate) fn run(global: &Global, args: &RankArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        None => show::run(global, &args.show),
        Some(RankVerb::Report(args)) => report::run(global, args),
        Some(RankVerb::Replay(args)) => replay::run(global, args),
    }
}
