//! Bounds of rankings.

/// Most candidates of a ranking: four times the thousand for which the cost of a ranking is promised.
pub const MAX_CANDIDATES: usize = 4096;
/// Most metrics of a profile: twice the fifteen insights and their like; bounds the work for each candidate.
pub const MAX_METRICS: usize = 32;
/// Smallest cost of a request: a nanosecond in seconds. Costs are divided by, so they are not zero.
pub const MIN_COST: f64 = 1e-9;
/// Largest cost of a request: a day in seconds, above which a comparison means nothing.
pub const MAX_COST: f64 = 86_400.0;
/// Largest latency of an outcome, or time until it failed: eleven days in seconds. Clients in C and Python refuse more, too.
pub const MAX_OUTCOME_SECONDS: f64 = 1e6;
/// The version of recordings that this program reads.
pub const VERSION: u32 = 1;
