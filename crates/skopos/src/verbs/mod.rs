//! What each verb does, a file each.

pub(crate) mod up;
mod agent;
mod run;
pub(crate) mod archive;
pub(crate) mod estimate;
mod ls;
mod get;
#[cfg(feature = "hub")]
mod get_hub;
mod watch;
mod record;
mod publish;
#[cfg(feature = "sql")]
pub(crate) mod sql;
#[cfg(feature = "sql")]
mod watch_sql;
#[cfg(feature = "hub")]
pub(crate) mod hub;
#[cfg(feature = "hub")]
pub(crate) mod simulate;
#[cfg(all(feature = "history", feature = "bench"))]
pub(crate) mod fill_history;
mod calibrate;
mod insight;
mod graph;
mod doctor;
pub(crate) mod delphi;
mod completion;
mod man;

use std::process::ExitCode;

use crate::cli::{Cli, Verb};
use crate::failure::Failure;

/// Does what the user typed.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let global = &cli.global;
    match cli.verb {
        Verb::Up(args) => up::run(global, &args),
        Verb::Agent(args) => agent::run(global, &args),
        Verb::Run(args) => run::run(global, &args),
        Verb::Archive(args) => archive::run(global, &args),
        Verb::Estimate(args) => estimate::run(global, &args),
        #[cfg(feature = "tui")]
        Verb::Top(args) => crate::top::run(global, &args),
        Verb::Ls(args) => ls::run(global, &args),
        Verb::Get(args) => get::run(global, &args),
        Verb::Watch(args) => watch::run(global, &args),
        Verb::Record(args) => record::run(global, &args),
        Verb::Publish(args) => publish::run(global, &args),
        #[cfg(feature = "hub")]
        Verb::Hub(args) => hub::run(global, &args),
        #[cfg(feature = "hub")]
        Verb::Simulate(args) => simulate::run(global, &args),
        #[cfg(all(feature = "history", feature = "bench"))]
        Verb::FillHistory(args) => fill_history::run(global, &args),
        #[cfg(feature = "sql")]
        Verb::Sql(args) => sql::run(global, &args),
        Verb::Calibrate(args) => calibrate::run(global, &args),
        Verb::Insight(args) => insight::run(global, &args),
        Verb::Graph(args) => graph::run(global, &args),
        Verb::Doctor => doctor::run(global),
        Verb::Delphi(args) => delphi::run(global, &args),
        #[cfg(feature = "bench")]
        Verb::Bench(args) => crate::bench::run(global, &args),
        Verb::Completion(args) => completion::run(&args),
        Verb::Man(args) => man::run(&args),
    }
}
