//! `skopos insight ls|show|explain`: what is computed from facts, and how it comes about.

mod ls;
mod show;
mod explain;

use std::process::ExitCode;

use skopos_model::{Timestamp, Unit, Value};

use crate::cli::{Global, InsightArgs, InsightVerb};
use crate::control::VertexStatus;
use crate::failure::Failure;
use crate::format;
use skopos_model::duration;

pub(crate) fn run(global: &Global, args: &InsightArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        InsightVerb::Ls { pattern } => ls::run(global, pattern.as_deref()),
        InsightVerb::Show { name } => show::run(global, name),
        InsightVerb::Explain { name } => explain::run(global, name),
    }
}

/// The value with its unit as people read it; `unknown: reason` if there is none.
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

/// How long ago its source was looked at.
pub(crate) fn age(vertex: &VertexStatus, now: Timestamp) -> String {
    match vertex.checked_at_ns {
        0 => "never looked at".to_owned(),
        nanos => format!("{} old", duration::human(now.since(Timestamp::from_nanos(nanos)))),
    }
}
