//! Findings: conditions of a job that its user can change, each a rule in a file of its own.
//!
//! A rule reads a [`JobView`]: the start of the job, the reports of its tasks, its series and its end. It returns a
//! [`Verdict`]: the finding with the numbers on which it stands, the absence of the condition, or the reason why the job
//! cannot be judged. A rule never guesses an input that is missing.
//!
//! # Invariants
//! - The rules are pure and read nothing but the view.
//! - Each number of a finding is finite. A view with other numbers is not judged.
//! - The thresholds are named constants, and each says its reason.
//!
//! Read in this order: `verdict`, `view`, `numbers`, `rule`, and `idle_cores`, the smallest rule. [`judge`] applies all.

mod verdict;
mod numbers;
mod series;
mod view;
mod rule;
mod idle_cores;
mod memory_request;
mod memory_leak;
mod tiny_io;
mod imbalance;
mod cpu_throttled;
mod slow_node;
mod limit;
mod wall_time;
mod gpu_idle;
mod swapping;
mod metadata_storm;
mod class;
mod table;
#[cfg(test)]
mod tests;

pub use class::{CLASS, Earlier, MIN_EARLIER, judge_class};
pub use rule::Rule;
pub use series::Series;
pub use table::{RULES, judge};
pub use verdict::{Evidence, Found, Judged, Severity, Verdict};
pub use view::{JobView, is_read};
