//! The list of the rules.

use serde::Serialize;

use super::facts::NodeFacts;
use super::rule::Rule;
use super::verdict::{Judged, Verdict};
use super::view::View;
use super::{
    databases, eager_overflow, execution_streams, imbalance, large_messages, long_handlers,
    serialized_handlers, slow_children, slow_node, starved_progress, unaccounted,
};
use crate::analysis::trace::Trace;
use crate::error::Error;

/// All rules: first those of the paper's cases, in their order.
pub static RULES: [&Rule; 11] = [
    &execution_streams::RULE,
    &databases::RULE,
    &starved_progress::RULE,
    &unaccounted::RULE,
    &eager_overflow::RULE,
    &imbalance::RULE,
    &slow_node::RULE,
    &large_messages::RULE,
    &long_handlers::RULE,
    &serialized_handlers::RULE,
    &slow_children::RULE,
];

/// The verdicts of all rules about a trace.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Found conditions first, that with the greatest predicted gain on top; then absent ones, then those that cannot be
    /// judged.
    pub findings: Vec<Judged>,
    /// The end-to-end time of all root calls in ns: the whole of which gains are shares.
    pub root_ns: f64,
}

/// Applies all rules to a trace.
///
/// # Errors
/// A file cannot be read any more.
pub fn judge(trace: &Trace<'_>, facts: &NodeFacts) -> Result<Findings, Error> {
    let view = View::collect(trace, facts)?;
    let judged = RULES.iter().map(|rule| Judged {
        finding: rule.name,
        verdict: rule.judge(&view),
        advice: rule.advice,
    });
    let mut findings: Vec<Judged> = judged.collect();
    let rank = |judged: &Judged| match &judged.verdict {
        Verdict::Found(found) => (2, found.saves.value, found.saves.high),
        Verdict::Absent => (1, 0.0, 0.0),
        Verdict::Unknown { .. } => (0, 0.0, 0.0),
    };
    findings.sort_by(|a, b| rank(b).partial_cmp(&rank(a)).unwrap_or(std::cmp::Ordering::Equal));
    Ok(Findings { findings, root_ns: view.root_ns() })
}
