//! The list of the rules.

use super::class::{CLASS, Earlier, judge_class};
use super::rule::Rule;
use super::verdict::Judged;
use super::view::JobView;
use super::*;

/// All rules that look at one job alone, those about its end first.
pub static RULES: [&Rule; 12] = [
    &limit::RULE,
    &wall_time::RULE,
    &idle_cores::RULE,
    &memory_request::RULE,
    &memory_leak::RULE,
    &swapping::RULE,
    &cpu_throttled::RULE,
    &gpu_idle::RULE,
    &tiny_io::RULE,
    &metadata_storm::RULE,
    &imbalance::RULE,
    &slow_node::RULE,
];

/// Applies all rules to a job, and compares it with earlier jobs of its class.
pub fn judge(view: &JobView, earlier: &[Earlier]) -> Vec<Judged> {
    let rules = RULES.iter().map(|rule| Judged {
        finding: rule.name,
        verdict: rule.judge(view),
        advice: rule.advice,
    });
    let (finding, advice) = (CLASS.name, CLASS.advice);
    let class = Judged { finding, verdict: judge_class(view, earlier), advice };
    rules.chain([class]).collect()
}
