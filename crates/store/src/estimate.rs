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
//!
//! An attempt that a limit ended is a *censored* record: the task needs more than it got. Its share of the
//! evidence goes to the tasks that needed more, as in B. Efron, "The Two Sample Problem with Censored Data",
//! Berkeley Symposium 1967; if no task did, to one that needs twice as much. Programs and data
//! change, so a task counts half after [`HALF_LIFE`] newer ones.

use serde::Serialize;

/// The greatest risk that is taken unless the caller asks for another one: most tasks should run once.
pub const MAX_RISK: f64 = 0.5;

/// The confidence with which the risk is below its bound.
pub const CONFIDENCE: f64 = 0.95;

/// Number of newer tasks after which a task counts half as much for the estimate.
pub const HALF_LIFE: f64 = 50.0;

/// The least weight of a task. Weights divide the evidence of others, so old ones must not reach zero; this one is far below
/// the last digit of a sum that has a new task.
const LEAST_WEIGHT: f64 = 1e-30;

/// The multiple of the greatest limit that ended an attempt which the task is taken to need, if no task that
/// used more is known. The next attempt then has a good chance, and after a few more the need is known.
const BEYOND: f64 = 2.0;

/// Usage of one task, as evidence for the needs of the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The usage. Of a censored one, `value` is the limit that ended it.
    pub record: Record,
    /// A limit on this resource ended the attempt, so the task needs more.
    pub is_censored: bool,
}

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
    let sound = records.iter().copied().filter(is_sound);
    choose(sound.map(|record| Weighted { record, weight: 1.0 }).collect(), minimize, max_risk)
}

/// Does the same with evidence, the oldest first: older tasks count less, and an attempt that a limit ended
/// counts as a task that needs more. Returns `None` without a task that ended by itself.
pub fn estimate_from(evidence: &[Evidence], minimize: Minimize, max_risk: f64) -> Option<Estimate> {
    let (weighted, count) = weighed(evidence)?;
    choose(weighted, minimize, max_risk).map(|chosen| Estimate { count, ..chosen })
}

/// Returns the expected cost of giving `allocation` first and `maximum` after that, judged by the evidence of
/// [`estimate_from`], so that its choice can be compared with others. Returns `None` without a task that ended by itself.
pub fn judge_from(evidence: &[Evidence], allocation: f64, maximum: f64) -> Option<Estimate> {
    let (mut weighted, count) = weighed(evidence)?;
    // Sums in one order are equal to the last digit.
    sort(&mut weighted);
    Some(Estimate { count, ..judge_weighted(&weighted, allocation, maximum) })
}

/// Returns evidence with its weights, and the number of tasks that ended by themselves; `None` without one.
fn weighed(evidence: &[Evidence]) -> Option<(Vec<Weighted>, usize)> {
    let sound = evidence.iter().rev().filter(|one| is_sound(&one.record));
    let mut whole: Vec<Weighted> = Vec::new();
    let mut censored: Vec<Weighted> = Vec::new();
    for (newer, one) in sound.enumerate() {
        let weight = 0.5f64.powf(newer as f64 / HALF_LIFE).max(LEAST_WEIGHT);
        let list = if one.is_censored { &mut censored } else { &mut whole };
        list.push(Weighted { record: one.record, weight });
    }
    if whole.is_empty() {
        return None;
    }
    let count = whole.len();
    Some((redistributed(whole, censored), count))
}

/// Gives the weight of each attempt that a limit ended to the tasks that needed more than its limit, in proportion to theirs.
/// Both lists are sorted once, and the tasks above a limit share one factor.
fn redistributed(mut whole: Vec<Weighted>, mut censored: Vec<Weighted>) -> Vec<Weighted> {
    let by_value = |a: &Weighted, b: &Weighted| b.record.value.total_cmp(&a.record.value);
    // From the greatest limit down: what one adds may be what the next one needs.
    whole.sort_by(by_value);
    censored.sort_by(by_value);
    let mut rest = whole.into_iter().peekable();
    // The tasks above the limit with their weights divided by `factor`, and the sum of their weights.
    let (mut above, mut factor, mut sum): (Vec<Weighted>, f64, f64) = (Vec::new(), 1.0, 0.0);
    for Weighted { record, weight } in censored {
        while let Some(task) = rest.next_if(|task| task.record.value > record.value) {
            above.push(Weighted { weight: task.weight / factor, ..task });
            sum += task.weight;
        }
        if above.is_empty() {
            let record = Record { value: BEYOND * record.value, ..record };
            above.push(Weighted { record, weight });
        } else {
            factor *= 1.0 + weight / sum;
        }
        sum += weight;
    }
    above.iter_mut().for_each(|task| task.weight *= factor);
    above.extend(rest);
    above
}

/// A record, and its share of the evidence.
#[derive(Clone, Copy, Debug)]
struct Weighted {
    record: Record,
    weight: f64,
}

fn sort(all: &mut [Weighted]) {
    all.sort_by(|a, b| a.record.value.total_cmp(&b.record.value));
}

fn choose(mut sorted: Vec<Weighted>, minimize: Minimize, max_risk: f64) -> Option<Estimate> {
    sort(&mut sorted);
    let maximum = sorted.last()?.record.value;
    let allocation = match minimize {
        Minimize::Retries => maximum,
        Minimize::Waste => least_waste(&sorted, maximum, max_risk)?,
    };
    Some(judge_weighted(&sorted, allocation, maximum))
}

/// Returns the expected cost of giving `allocation` first and `maximum` after that, judged by these
/// records. A record above the maximum counts as if the maximum were enough for it. Without records
/// every number is zero.
pub fn judge(records: &[Record], allocation: f64, maximum: f64) -> Estimate {
    let all = records.iter().map(|record| Weighted { record: *record, weight: 1.0 });
    judge_weighted(&all.collect::<Vec<_>>(), allocation, maximum)
}

fn judge_weighted(all: &[Weighted], allocation: f64, maximum: f64) -> Estimate {
    let count = all.len();
    let sum =
        |of: &dyn Fn(&Record) -> f64| all.iter().map(|w| w.weight * of(&w.record)).sum::<f64>();
    let n = sum(&|_| 1.0).max(f64::MIN_POSITIVE);
    let squares: f64 = all.iter().map(|w| w.weight * w.weight).sum();
    // The number of equally weighted records that would say as much.
    let effective = if squares > 0.0 { n * n / squares } else { 1.0 };
    let exceed = sum(&|r| if r.value > allocation { 1.0 } else { 0.0 });
    let wasted = sum(&|r| waste(r, allocation, maximum));
    let used = sum(&|r| r.value * r.seconds);
    let risk = exceed / n;
    let spread = ((1.0 / (1.0 - CONFIDENCE)).ln() / (2.0 * effective)).sqrt();
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
fn least_waste(sorted: &[Weighted], maximum: f64, max_risk: f64) -> Option<f64> {
    let n = sorted.iter().map(|w| w.weight).sum::<f64>();
    // `E[τ]`, and the part of it that comes from records up to the current one.
    let all = sorted.iter().map(|w| w.weight * w.record.seconds).sum::<f64>() / n;
    let (mut below, mut counted) = (0.0, 0.0);
    let mut best: Option<(f64, f64)> = None;
    for (at, Weighted { record, weight }) in sorted.iter().enumerate() {
        below += weight * record.seconds / n;
        counted += weight;
        // Of several equal values only the last has all of them below it.
        if sorted.get(at + 1).is_some_and(|next| next.record.value == record.value) {
            continue;
        }
        let is_last = at + 1 == sorted.len();
        let exceed = n - counted;
        // The greatest value is always a candidate, whatever the permitted risk.
        if !is_last && exceed > max_risk * n {
            continue;
        }
        let above = if is_last { 0.0 } else { (all - below).max(0.0) };
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn weighted() -> impl Strategy<Value = Weighted> {
        let value = prop_oneof![(1..20i32).prop_map(f64::from), 1.0..100.0f64];
        (value, 0.001..1.0f64).prop_map(|(value, weight)| {
            let record = Record { value, seconds: 1.0 };
            Weighted { record, weight }
        })
    }

    /// Does the same as [`redistributed`], one attempt at a time.
    fn one_by_one(mut whole: Vec<Weighted>, mut censored: Vec<Weighted>) -> Vec<Weighted> {
        censored.sort_by(|a, b| b.record.value.total_cmp(&a.record.value));
        for Weighted { record, weight } in censored {
            let is_greater = |one: &&mut Weighted| one.record.value > record.value;
            let above: f64 = whole.iter_mut().filter(is_greater).map(|one| one.weight).sum();
            if above == 0.0 {
                let record = Record { value: BEYOND * record.value, ..record };
                whole.push(Weighted { record, weight });
            }
            let is_spread = above > 0.0;
            let all = whole.iter_mut().filter(|one| is_spread && is_greater(one));
            all.for_each(|one| one.weight *= 1.0 + weight / above);
        }
        whole
    }

    proptest! {
        #[test]
        fn weights_of_ended_attempts_go_to_the_tasks_that_needed_more(
            whole in vec(weighted(), 1..60),
            censored in vec(weighted(), 0..60),
        ) {
            let sorted = |mut all: Vec<Weighted>| {
                all.sort_by(|a, b| {
                    let by_value = a.record.value.total_cmp(&b.record.value);
                    by_value.then(a.weight.total_cmp(&b.weight))
                });
                all
            };
            let expected = sorted(one_by_one(whole.clone(), censored.clone()));
            let found = sorted(redistributed(whole, censored));
            prop_assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found.record, expected.record);
                let error = (found.weight - expected.weight).abs();
                prop_assert!(error <= 1e-9 * expected.weight, "{:?}, {:?}", found, expected);
            }
        }
    }
}
