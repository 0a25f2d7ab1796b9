//! `skopos insight ls|show|explain`: values computed from facts, with their formulas and inputs.

mod ls;
mod show;
mod explain;

use clap::{Args, Subcommand};
use std::process::ExitCode;

use skopos_model::{Timestamp, Unit, Value};

use skopos_agent::control::VertexStatus;
use skopos_model::duration;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::format;

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

/// Formats the value with its unit for people; `unknown: reason` without a value.
pub(crate) fn value(vertex: &VertexStatus) -> String {
    if let Some(reason) = &vertex.unknown {
        return format!("unknown: {reason}");
    }
    let unit = Unit::new(&vertex.unit).unwrap_or(Unit::NONE);
    match vertex.value.as_f64() {
        Some(number) if vertex.value.is_f64() => format::value(&Value::F64(number), unit),
        Some(number) => match vertex.value.as_u64() {
            Some(whole) => format::value(&Value::U64(whole), unit),
            None => format::value(&Value::F64(number), unit),
        },
        None => vertex.value.to_string(),
    }
}

/// Formats the time since the last poll of the source.
pub(crate) fn age(vertex: &VertexStatus, now: Timestamp) -> String {
    match vertex.checked_at_ns {
        0 => "never polled".to_owned(),
        nanos => format!("{} old", duration::human(now.since(Timestamp::from_nanos(nanos)))),
    }
}
