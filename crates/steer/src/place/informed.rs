//! The policy of Skopos: the target with the least expected time among those that have room.
//!
//! # Rules
//! - The expected time of a transfer is that of the bytes in flight and its own, at the calibrated speed, over the share of
//!   the device that other programs leave. To a read they leave half at least. A write also waits for those that are about to
//!   begin; a read does not, because they may wait for room.
//! - A tier has room if its remaining capacity, less the own bytes that telemetry has not seen yet, is enough. If the
//!   remaining capacity is unknown, the own count of bytes decides.
//! - A sick device, and one that is good for fewer copies than the file needs, is used only if no other has room.
//! - Targets within [`TIE`] of the best take turns, so that equal targets have equal shares.
//! - A target of unknown speed has its turns of the round robin, if it has room. The others share the other turns.
//! - A file that is brought up is read later. So its expected time is that of all reads that are to come on the target, under
//!   the mean load of others; transfers in flight do not count. Copies of one program are thus spread over targets by
//!   their speed, and its readers use them side by side.
//! - If no target has room, the choice is that of the round robin.

use crate::place::estimate::{Estimate, estimate};
use crate::place::mean::Mean;
use crate::place::policy::{Policy, Request};
use crate::place::round_robin::{RoundRobin, Turn, buffers, turns};
use crate::place::tier::Tier;

/// Targets whose expected times are this near to the best one take turns: telemetry is not more exact. A request of two
/// megabytes that ends at the edge of a poll's window of 0.1 s is a tenth of what a disk moves, and two tiers can err apart.
pub const TIE: f64 = 1.25;

/// Chooses by remaining capacity, load, interference, health and fault tolerance of the tiers.
#[derive(Debug, Default)]
pub struct Informed {
    baseline: RoundRobin,
    placed: Turn,
    prefetched: Turn,
    replicated: Turn,
    means: Vec<Mean>,
    estimates: Vec<Estimate>,
    refused: u64,
}

/// A target: its class, of which the lowest counts, and its expected time.
#[derive(Clone, Copy, Debug)]
struct Target {
    at: usize,
    class: u8,
    seconds: Option<f64>,
}

impl Informed {
    /// Makes the policy.
    pub fn new() -> Self {
        Self::default()
    }

    fn look(&mut self, tiers: &[Tier]) {
        self.refused += estimate(tiers, &mut self.means, &mut self.estimates);
    }
}

/// Returns the best of `targets`. `turns` is the number of targets that take turns, which are the first.
fn choose(targets: &[Target], turn: &mut Turn, turns: usize) -> Option<usize> {
    let class = targets.iter().map(|target| target.class).min()?;
    let best_class = || targets.iter().filter(|target| target.class == class);
    let is_unknown = |at: usize| best_class().any(|t| t.at == at && t.seconds.is_none());
    // The turn falls on a target, with room or not; an unknown one with room takes it.
    let on_turn = turn.peek(turns, |_| true).filter(|at| is_unknown(*at));
    let best = best_class().filter_map(|t| t.seconds).reduce(f64::min);
    let chosen = match (on_turn, best) {
        (Some(at), _) => at,
        (None, Some(best)) => {
            let near = |at: usize| {
                best_class().any(|t| t.at == at && t.seconds.is_some_and(|s| s <= best * TIE))
            };
            // A target behind those that take turns can be the only one.
            turn.peek(turns, near).or_else(|| best_class().map(|t| t.at).find(|at| near(*at)))?
        }
        // All are unknown: the next one that has room.
        (None, None) => {
            turn.peek(turns, is_unknown).or_else(|| best_class().map(|t| t.at).next())?
        }
    };
    turn.step();
    Some(chosen)
}

impl Policy for Informed {
    fn place(&mut self, request: Request, tiers: &[Tier]) -> Option<usize> {
        self.look(tiers);
        let good = |e: &Estimate| !e.is_failed && request.bytes <= e.room_bytes;
        let few = |e: &Estimate| e.fault_tolerance.is_some_and(|f| f < request.fault_tolerance);
        let target = |(at, e): (usize, &Estimate)| Target {
            at,
            class: (e.is_sick || few(e)).into(),
            seconds: e.write_seconds(request.bytes),
        };
        let all = self.estimates.iter().enumerate();
        let targets: Vec<Target> = all.filter(|(_, e)| good(e)).map(target).collect();
        let chosen = choose(&targets, &mut self.placed, buffers(tiers));
        chosen.or_else(|| self.baseline.place(request, tiers))
    }

    fn flush(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
        self.look(tiers);
        let good = |e: &Estimate| !e.is_failed && bytes <= e.room_bytes;
        let below = self.estimates.iter().enumerate().skip(from + 1).filter(|(_, e)| good(e));
        let mut best: Option<(bool, f64, usize)> = None;
        for (at, estimate) in below {
            let Some(seconds) = estimate.write_seconds(bytes) else {
                // Without all speeds there is no comparison.
                return self.baseline.flush(bytes, from, tiers);
            };
            let candidate = (estimate.is_sick, seconds, at);
            if best.is_none_or(|best| (candidate.0, candidate.1) < (best.0, best.1)) {
                best = Some(candidate);
            }
        }
        best.map(|(_, _, at)| at).or_else(|| self.baseline.flush(bytes, from, tiers))
    }

    fn prefetch(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
        self.look(tiers);
        let here = self.estimates.get(from)?.later_seconds(bytes);
        let good = |e: &Estimate| {
            let room = e.room_bytes.saturating_add(e.evictable_bytes);
            !e.is_failed && bytes <= room
        };
        let targets: Vec<Target> = (self.estimates.iter().enumerate().take(from))
            .filter(|(_, e)| good(e))
            // A loaded device can be slower than the source.
            .filter(|(_, e)| {
                e.later_seconds(bytes).zip(here).is_none_or(|(there, here)| there < here)
            })
            .map(|(at, e)| {
                let seconds = e.later_seconds(bytes.saturating_add(e.awaited_bytes));
                Target { at, class: e.is_sick.into(), seconds }
            })
            .collect();
        choose(&targets, &mut self.prefetched, from)
    }

    fn replicate(
        &mut self,
        request: Request,
        sets: &[Vec<usize>],
        tiers: &[Tier],
    ) -> Option<usize> {
        self.look(tiers);
        let estimates = &self.estimates;
        let good = |at: &usize| {
            estimates.get(*at).is_some_and(|e| !e.is_failed && request.bytes <= e.room_bytes)
        };
        let fits = |(_, set): &(usize, &Vec<usize>)| set.iter().all(good);
        let target = |(at, set): (usize, &Vec<usize>)| {
            let members = || set.iter().map(|member| &estimates[*member]);
            // An unknown device counts as a plain one, which keeps one copy.
            let copies: f64 = members().map(|e| e.fault_tolerance.unwrap_or(1.0)).sum();
            let is_weak = copies < request.fault_tolerance || members().any(|e| e.is_sick);
            // Replicas are written side by side, and read from the nearest.
            let written = members().map(|e| e.write_seconds(request.bytes));
            let written = written.reduce(|a, b| Some(a?.max(b?))).flatten();
            let read = members().map(|e| e.read_seconds(request.bytes));
            let read = read.reduce(|a, b| Some(a?.min(b?))).flatten();
            let seconds = written.zip(read).map(|(written, read)| written + read);
            Target { at, class: is_weak.into(), seconds }
        };
        let targets: Vec<Target> = sets.iter().enumerate().filter(fits).map(target).collect();
        let chosen = choose(&targets, &mut self.replicated, turns(sets, tiers));
        chosen.or_else(|| self.baseline.replicate(request, sets, tiers))
    }

    fn read(&mut self, bytes: u64, holders: &[usize], tiers: &[Tier]) -> Option<usize> {
        if holders.len() > 1 {
            self.look(tiers);
            let usable = || {
                let known = holders.iter().filter_map(|at| Some((*at, self.estimates.get(*at)?)));
                known.filter(|(_, e)| !e.is_failed)
            };
            let times: Option<Vec<(usize, f64)>> =
                usable().map(|(at, e)| Some((at, e.read_seconds(bytes)?))).collect();
            if let Some(times) = times {
                return times.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at);
            }
        }
        self.baseline.read(bytes, holders, tiers)
    }

    fn refused(&self) -> u64 {
        self.refused
    }
}
