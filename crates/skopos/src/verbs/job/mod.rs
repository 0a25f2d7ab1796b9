//! `skopos job show|compare|export|fetch|tag`: one job, with what was found about it; `skopos job import`: tasks of an
//! archive as jobs.

pub(super) mod hub;
mod found;
mod one;
mod show;
mod compare;
mod tag;
mod export;
mod fetch;
mod import;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use skopos_term::{Failure, Global};

use self::export::Format;
use self::fetch::FetchArgs;
use self::import::ImportArgs;

#[derive(Debug, Args)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    pub(crate) verb: JobVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JobVerb {
    /// Show a job: its metadata, findings, what it used, and its series
    #[command(before_help = "Example: skopos job show 4711")]
    Show {
        /// Id of the job as `skopos jobs` lists it, or its beginning; `ID.g1` is its second run
        id: String,
    },
    /// Compare two jobs: what differs most comes first
    #[command(before_help = "Example: skopos job compare 4711 4712")]
    Compare {
        /// Id of the first job
        a: String,
        /// Id of the second job
        b: String,
    },
    /// Export a job: its measurements as Parquet or CSV, or all of it as a page
    #[command(before_help = "Example: skopos job export 4711 --format html --out job.html")]
    Export {
        /// Id of the job
        id: String,
        /// Format
        #[arg(long, short = 'F', value_enum)]
        format: Format,
        /// File to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Download jobs as Parquet files, several portions at a time, and verify them
    #[command(before_help = "Example: skopos job fetch 4711 4712 --out jobs")]
    Fetch(FetchArgs),
    /// Import the tasks of an archive as jobs. A task that the hub has already is not stored again
    #[command(before_help = "Example: skopos job import tasks.sqlite --where 'set=autumn'")]
    Import(ImportArgs),
    /// Add words by which the job is found again, or remove them
    #[command(before_help = "Example: skopos job tag 4711 paper=fig3 --remove draft")]
    Tag {
        /// Id of the job
        id: String,
        /// Tags to add: KEY=VALUE, which takes the place of another value of the key, or a word
        #[arg(value_name = "KEY=VALUE")]
        tags: Vec<String>,
        /// Remove this word, or the value of this key
        #[arg(long, value_name = "KEY")]
        remove: Vec<String>,
    },
}

pub(crate) fn run(global: &Global, args: &JobArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        JobVerb::Show { id } => show::run(global, id),
        JobVerb::Compare { a, b } => compare::run(global, a, b),
        JobVerb::Export { id, format, out } => export::run(global, id, *format, out.as_deref()),
        JobVerb::Fetch(args) => fetch::run(global, args),
        JobVerb::Import(args) => import::run(global, args),
        JobVerb::Tag { id, tags, remove } => tag::run(global, id, tags, remove),
    }
}
