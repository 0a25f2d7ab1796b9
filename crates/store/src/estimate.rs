//! What the next task of a class should be given, from what earlier ones used.
//!
//! The two-step policy of B. Tovar, R. Ferreira da Silva, G. Juve, E. Deelman, W. Allcock, D. Thain
//! and M. Livny, "A Job Sizing Strategy for High-Throughput Scientific Workflows", IEEE Transactions
//! on Parallel and Distributed Systems 29(2), 2018, pages 240-253: a task is given a first allocation
//! `a`; if it exhausts that, it is run again with the maximum `m`. A task that used `r` for a time
//! `τ` wastes
//!
//! ```text
//! τ (a - r)          if r ≤ a: what it was given and did not use
//! τ (a + m - r)      if r > a: the whole first attempt, and what it did not use of the second
//! ```
//!
//! under the assumption of *slow peaks*: an attempt that fails does so at its end. If it fails
//! earlier, less is wasted. The mean over all tasks is
//!
//! ```text
//! W(a) = a·E[τ] + m·E[τ; r > a] - E[τ r]
//! ```
//!
//! Between two values of `r` it only rises with `a`, so its least value is at one of them, and one
//! pass over the sorted records finds it exactly. Throughput, in tasks for each unit of the resource
//! and of time, is up to a constant
//!
//! ```text
//! T(a) = ((m / a)·P(r ≤ a) + P(r > a)) / (E[τ] + E[τ; r > a])
//! ```
//!
//! which, too, is greatest at one of the values. It counts attempts rather than tasks where many fail, so
//! it may choose an allocation that nearly all exceed; and so may `W`, where a first attempt is cheap.
//! Both are therefore sought among the allocations that at most a given share of the records exceed.

use serde::Serialize;

/// Most tasks should run once: the greatest risk that is taken unless another one is asked for.
pub const MAX_RISK: f64 = 0.5;

/// With this confidence the risk is below its bound.
pub const CONFIDENCE: f64 = 0.95;

/// What one task used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Of the resource, in its unit.
    pub value: f64,
    /// For how long it had it, in seconds. One second for each where the resource is itself a time:
    /// nobody holds time for a time.
    pub seconds: f64,
}

/// What the allocation is chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Minimize {
    /// The least of the resource is held and not used, `W(a)`.
    Waste,
    /// The fewest tasks run twice: the greatest value that was ever seen.
    Retries,
    /// The least time for many tasks on a machine of a given size: the greatest `T(a)`.
    Time,
}

/// An allocation and what it is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// What to give a task first.
    pub allocation: f64,
    /// What to give it if that was too little: the greatest value that was seen.
    pub maximum: f64,
    /// Expected waste of a task in the resource's unit times seconds, [`waste`].
    pub waste: f64,
    /// It as a share of all that is held.
    pub waste_share: f64,
    /// The share of the records that need more than the allocation.
    pub risk: f64,
    /// The next task needs more than the allocation with at most this probability, with
    /// [`CONFIDENCE`], if it comes from where the records came from. By the inequality of Dvoretzky,
    /// Kiefer and Wolfowitz with Massart's constant, which holds for all allocations at once and so
    /// for the chosen one: `risk + √(ln(1 / 0.05) / 2n)`.
    pub risk_bound: f64,
    /// The number of records.
    pub count: usize,
}

/// Chooses an allocation that at most `max_risk` of the records exceed. `None` without records. Values must be finite and not negative, times
/// finite and above zero; others are left out.
pub fn estimate(records: &[Record], minimize: Minimize, max_risk: f64) -> Option<Estimate> {
    let mut sorted: Vec<Record> = records.iter().copied().filter(is_sound).collect();
    sorted.sort_by(|a, b| a.value.total_cmp(&b.value));
    let maximum = sorted.last()?.value;
    let allocation = match minimize {
        Minimize::Retries => maximum,
        Minimize::Waste => least(&sorted, max_risk, |a, all, above, _| a * all + maximum * above)?,
        // A task that uses nothing fits into nothing, infinitely often: no allocation for others.
        Minimize::Time => least(&sorted, max_risk, |a, all, above, fits| {
            if a <= 0.0 && maximum > 0.0 {
                return f64::INFINITY;
            }
            -((maximum / a) * fits + 1.0 - fits) / (all + above)
        })?,
    };
    Some(judge(&sorted, allocation, maximum))
}

/// What giving `allocation` first and `maximum` then would cost with these records. Those that need
/// more than the maximum are counted as if it were enough.
///
/// # Panics
/// Never; without records all is zero.
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

/// What one task wastes under the two-step policy, in the resource's unit times seconds.
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

/// The value whose cost is least; of equal ones the greatest, which fails less often. The cost is
/// given the value, `E[τ]`, `E[τ; r > a]` and `P(r ≤ a)`.
fn least(
    sorted: &[Record],
    max_risk: f64,
    cost: impl Fn(f64, f64, f64, f64) -> f64,
) -> Option<f64> {
    let n = sorted.len() as f64;
    let all = sorted.iter().map(|r| r.seconds).sum::<f64>() / n;
    let mut below = 0.0;
    let mut best: Option<(f64, f64)> = None;
    for (at, record) in sorted.iter().enumerate() {
        below += record.seconds / n;
        // Of several equal values the last one has all of them below it.
        if sorted.get(at + 1).is_some_and(|next| next.value == record.value) {
            continue;
        }
        let exceed = sorted.len() - at - 1;
        // The greatest value is always a choice, whatever risk is wanted.
        if exceed > 0 && exceed as f64 > max_risk * n {
            continue;
        }
        let fits = (at + 1) as f64 / n;
        let above = if exceed == 0 { 0.0 } else { (all - below).max(0.0) };
        let this = cost(record.value, all, above, fits);
        if best.is_none_or(|(least, _)| this <= least) {
            best = Some((this, record.value));
        }
    }
    best.map(|(_, value)| value)
}

/// Steps of [`rounded`] between a power of two and the next: none is wider than 3 % of the value.
const STEPS: f64 = 32.0;

/// An allocation to be kept as a limit: the next of 32 steps between two powers of two, so that a task
/// that uses a page more than any before it does not fail for that page.
pub fn rounded(allocation: f64) -> f64 {
    if !allocation.is_finite() || allocation <= 0.0 {
        return allocation;
    }
    let step = 2f64.powi(allocation.log2().floor() as i32) / STEPS;
    (allocation / step).ceil() * step
}
