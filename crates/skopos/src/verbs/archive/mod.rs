//! `skopos archive import|ls|stats|export`: the reports of past tasks.

mod place;
mod import;
mod ls;
mod stats;
mod export;
mod plot;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_term::Failure;
use skopos_term::Global;

pub(crate) use place::{Place, Selection, create, failure, no_class, read};
pub(crate) use stats::known as known_resource;

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    verb: ArchiveVerb,
}

#[derive(Debug, Subcommand)]
enum ArchiveVerb {
    /// Add reports: files (those of resource_monitor and Kickstart too), and `summary.json`,
    /// `*.summary.json`, `*.summary` and `*.jsonl` below folders
    #[command(before_help = "Example: skopos archive import out")]
    Import(import::ImportArgs),
    /// List classes of tasks
    #[command(before_help = "Example: skopos archive ls --where 'host=n01'")]
    Ls(ls::LsArgs),
    /// Show the resources that tasks of a class used: mean, deviation, shape, quantiles, histogram
    #[command(
        before_help = "Example: skopos archive stats make --where 'memory>1GiB' --svg make.svg"
    )]
    Stats(stats::StatsArgs),
    /// Print the reports with the files of the tasks, one JSON document a line
    #[command(before_help = "Example: skopos archive export --where 'name=make' > make.jsonl")]
    Export(export::ExportArgs),
}

pub(crate) fn run(global: &Global, args: &ArchiveArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        ArchiveVerb::Import(args) => import::run(global, args),
        ArchiveVerb::Ls(args) => ls::run(global, args),
        ArchiveVerb::Stats(args) => stats::run(global, args),
        ArchiveVerb::Export(args) => export::run(global, args),
    }
}
