//! Chooses how much of a resource the next task of a class is given, from what earlier tasks used.
//!
//! The two-step policy of B. Tovar, R. Ferreira da Silva, G. Juve, E. Deelman, W. Allcock, D. Thain
//! and M. Livny, "A Job Sizing Strategy for High-Throughput Scientific Workflows", IEEE Transactions
//! on Parallel and Distributed Systems 29(2), 2018, pages 240-253: a task is given a first allocation
//! `a`; if it exhausts that, it is run again with the maximum `m`. A task that used `r` for a time
//! `τ` wastes
//!
//! ```text
//! τ (a - r)          if r ≤ a: the unused rest of its allocation
//! τ (a + m - r)      if r > a: the whole first attempt, and the unused rest of the second
//! ```
//!
//! under the assumption of *slow peaks*: an attempt that fails does so at its end. If it fails
//! earlier, less is wasted. The mean over all tasks is
//!
//! ```text
//! W(a) = a·E[τ] + m·E[τ; r > a] - E[τ r]
//! ```
//!
//! Between two values of `r`, `W` only rises with `a`. Its minimum is therefore at one of these
//! values, and one pass over the sorted records finds it exactly.
//!
//! If a first attempt is cheap, the minimum may be an allocation that nearly all tasks exceed. The
//! search is therefore restricted to allocations that at most a given share of the records exceed.

use serde::Serialize;

/// The greatest risk that is taken unless the caller asks for another one: most tasks should run once.
pub const MAX_RISK: f64 = 0.5;

/// The confidence with which the risk is below its bound.
pub const CONFIDENCE: f64 = 0.95;

/// Usage of one task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Amount of the resource, in its unit.
    pub value: f64,
    /// Time for which the task held the resource, in seconds. If the resource is itself a time, this
    /// is 1 for each task, because a time is not held for a time.
    pub seconds: f64,
}

/// The goal for which an allocation is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Minimize {
    /// The least amount that is held and not used, `W(a)`.
    Waste,
    /// The fewest tasks that run twice: the greatest value in the records.
    Retries,
}

/// An allocation and its expected cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The first allocation of a task.
    pub allocation: f64,
    /// The second allocation, if the first was too small: the greatest value in the records.
    pub maximum: f64,
    /// Expected [`waste`] of a task, in the resource's unit times seconds.
    pub waste: f64,
    /// Expected waste as a share of everything that is held.
    pub waste_share: f64,
    /// Share of the records that need more than the allocation.
    pub risk: f64,
    /// Upper bound of the probability that the next task needs more than the allocation, with
    /// [`CONFIDENCE`], if that task comes from the same population as the records. By the inequality
    /// of Dvoretzky, Kiefer and Wolfowitz with Massart's constant, which holds for all allocations at
    /// once and so for the chosen one: `risk + √(ln(1 / 0.05) / 2n)`.
    pub risk_bound: f64,
    /// Number of records.
    pub count: usize,
}

/// Chooses an allocation that at most the share `max_risk` of the records exceed. Returns `None`
/// without records. Ignores records whose value is negative or not finite, or whose time is not
/// finite and above zero.
pub fn estimate(records: &[Record], minimize: Minimize, max_risk: f64) -> Option<Estimate> {
    let mut sorted: Vec<Record> = records.iter().copied().filter(is_sound).collect();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    let maximum = sorted.last()?.value;
    let allocation = match minimize {
        Minimize::Retries => maximum,
        Minimize::Waste => least_waste(&sorted, maximum, max_risk)?,
    };
    Some(judge(&sorted, allocation, maximum))
}

/// Returns the expected cost of giving `allocation` first and `maximum` after that, judged by these
/// records. A record above the maximum counts as if the maximum were enough for it. Without records
/// every number is zero.
pub fn judge(records: &[Record], allocation: f64, maximum: f64) -> Estimate {
    let count = records.len();
    let n = (count as f64).max(1.0);
    let exceed = records.iter().filter(|r| r.value > allocation).count() as f64;
    let wasted: f64 = records.iter().map(|r| waste(r, allocation, maximum)).sum();
    let used: f64 = records.iter().map(|r| r.value * r.seconds).sum();
    let risk = exceed / n;
    let spread = ((1.0 / (1.0 - CONFIDENCE)).ln() / (2.0 * n)).sqrt();
    Estimate {
        allocation,
        maximum,
        waste: wasted / n,
        waste_share: if wasted + used > 0.0 { wasted / (wasted + used) } else { 0.0 },
        risk,
        risk_bound: (risk + spread).min(1.0),
        count,
    }
}

/// Returns the waste of one task under the two-step policy, in the resource's unit times seconds.
pub fn waste(record: &Record, allocation: f64, maximum: f64) -> f64 {
    let Record { value, seconds } = *record;
    if value <= allocation {
        seconds * (allocation - value)
    } else {
        seconds * (allocation + (maximum - value).max(0.0))
    }
}

fn is_sound(record: &Record) -> bool {
    let Record { value, seconds } = *record;
    value.is_finite() && value >= 0.0 && seconds.is_finite() && seconds > 0.0
}

/// Finds the value with the least `W(a)`; of equally good values the greatest, which fails less often.
fn least_waste(sorted: &[Record], maximum: f64, max_risk: f64) -> Option<f64> {
    let n = sorted.len() as f64;
    // `E[τ]`, and the part of it that comes from records up to the current one.
    let all = sorted.iter().map(|r| r.seconds).sum::<f64>() / n;
    let mut below = 0.0;
    let mut best: Option<(f64, f64)> = None;
    for (at, record) in sorted.iter().enumerate() {
        below += record.seconds / n;
        // Of several equal values only the last has all of them below it.
        if sorted.get(at + 1).is_some_and(|next| next.value == record.value) {
            continue;
        }
        let exceed = sorted.len() - at - 1;
        // The greatest value is always a candidate, whatever the permitted risk.
        if exceed > 0 && exceed as f64 > max_risk * n {
            continue;
        }
        let above = if exceed == 0 { 0.0 } else { (all - below).max(0.0) };
        // `E[τ r]` is the same for all candidates and left out.
        let cost = record.value * all + maximum * above;
        if best.is_none_or(|(least, _)| cost <= least) {
            best = Some((cost, record.value));
        }
    }
    best.map(|(_, value)| value)
}

/// Number of steps of [`rounded`] between two powers of two: no step is wider than 3 % of the value.
const STEPS: f64 = 32.0;

/// Rounds an allocation up to a limit: to the next of 32 steps between two powers of two. A task that
/// uses one page more than any task before it then does not fail because of that page.
pub fn rounded(allocation: f64) -> f64 {
    if !allocation.is_finite() || allocation <= 0.0 {
        return allocation;
    }
    let step = 2f64.powi(allocation.log2().floor() as i32) / STEPS;
    (allocation / step).ceil() * step
}
