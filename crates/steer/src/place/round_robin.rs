//! The baseline: targets take turns, whatever their state.

use crate::place::policy::{Policy, Request};
use crate::place::tier::Tier;

/// Targets take turns, as in the middleware of the Apollo paper (section 4.4.2). The policy knows nothing of the targets
/// but their size and whether they have just failed.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    placed: Turn,
    prefetched: Turn,
    replicated: Turn,
}

/// A pointer that goes round over targets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn(usize);

impl Turn {
    /// Returns the next of `0..targets` that is `good`, beginning at the pointer, and moves the pointer behind it.
    pub(super) fn next(&mut self, targets: usize, good: impl Fn(usize) -> bool) -> Option<usize> {
        let found = self.peek(targets, good)?;
        self.0 = found + 1;
        Some(found)
    }

    /// Returns the next of `0..targets` that is `good`, and leaves the pointer.
    pub(super) fn peek(&self, targets: usize, good: impl Fn(usize) -> bool) -> Option<usize> {
        (0..targets).map(|step| self.0.wrapping_add(step) % targets).find(|target| good(*target))
    }

    /// Moves the pointer by one.
    pub(super) fn step(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }
}

/// Returns the number of buffers: all tiers but the last, or the only one.
pub(super) fn buffers(tiers: &[Tier]) -> usize {
    tiers.len().saturating_sub(1).max(tiers.len().min(1))
}

/// Returns the number of sets that take turns: those without the last tier, or all if each has it.
pub(super) fn turns(sets: &[Vec<usize>], tiers: &[Tier]) -> usize {
    let is_of_buffers = |set: &&Vec<usize>| set.iter().all(|at| at + 1 < tiers.len());
    match sets.iter().take_while(is_of_buffers).count() {
        0 => sets.len(),
        turns => turns,
    }
}

impl RoundRobin {
    /// Makes the policy; the first target has the first turn.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Policy for RoundRobin {
    fn place(&mut self, request: Request, tiers: &[Tier]) -> Option<usize> {
        let fits =
            |at: usize| !tiers[at].own.is_failed && request.bytes <= tiers[at].own.capacity_bytes;
        let chosen = self.placed.next(buffers(tiers), fits);
        chosen.or_else(|| tiers.len().checked_sub(1).filter(|last| fits(*last)))
    }

    fn flush(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
        (from + 1..tiers.len())
            .find(|at| !tiers[*at].own.is_failed && bytes <= tiers[*at].own.room_bytes)
    }

    fn prefetch(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize> {
        let fits = |at: usize| !tiers[at].own.is_failed && bytes <= tiers[at].own.capacity_bytes;
        self.prefetched.next(from.min(tiers.len()), fits)
    }

    fn replicate(
        &mut self,
        request: Request,
        sets: &[Vec<usize>],
        tiers: &[Tier],
    ) -> Option<usize> {
        let fits = |at: &usize| {
            tiers
                .get(*at)
                .is_some_and(|tier| !tier.own.is_failed && request.bytes <= tier.own.capacity_bytes)
        };
        let good = |set: usize| sets[set].iter().all(fits);
        let turns = turns(sets, tiers);
        self.replicated.next(turns, good).or_else(|| (turns..sets.len()).find(|set| good(*set)))
    }

    fn read(&mut self, _bytes: u64, holders: &[usize], tiers: &[Tier]) -> Option<usize> {
        holders.iter().copied().find(|at| tiers.get(*at).is_some_and(|tier| !tier.own.is_failed))
    }
}
