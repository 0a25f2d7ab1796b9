//! The trait of policies.

use crate::place::tier::Tier;

/// Most tiers of a hierarchy: memory, a few kinds of local devices, and shared ones. Bounds the work of a decision.
pub const MAX_TIERS: usize = 16;
/// Most replicas of a file: a third one is usual, and five of sixteen tiers would have 4368 sets.
pub const MAX_COPIES: usize = 4;

/// A file to place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Its size.
    pub bytes: u64,
    /// Copies of the datum for which its devices shall be good together; 1 for ordinary data.
    pub fault_tolerance: f64,
}

impl Request {
    /// An ordinary file of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, fault_tolerance: 1.0 }
    }
}

/// Chooses tiers by their index in `tiers`. Tiers that have failed are not chosen; `None` stands for no choice.
///
/// A chosen tier can lack room. Then the caller makes room there, and the file waits for it.
pub trait Policy: Send {
    /// Chooses the tier on which a file is written.
    fn place(&mut self, request: Request, tiers: &[Tier]) -> Option<usize>;

    /// Chooses the tier below `from` to which a file is moved, to make room on `from`. It has room.
    fn flush(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize>;

    /// Chooses the tier above `from` to which a copy of a file is brought up; `None` if the file shall stay on `from`
    /// alone for now.
    fn prefetch(&mut self, bytes: u64, from: usize, tiers: &[Tier]) -> Option<usize>;

    /// Chooses one of `sets` of tiers, by its index there. Each tier of the set gets a replica. Sets without the last tier
    /// come first.
    fn replicate(&mut self, request: Request, sets: &[Vec<usize>], tiers: &[Tier])
    -> Option<usize>;

    /// Chooses the tier from which a file is read, among its `holders`, which are in rising order.
    fn read(&mut self, bytes: u64, holders: &[usize], tiers: &[Tier]) -> Option<usize>;

    /// Returns the number of values of telemetry that were refused, because they were NaN, infinite or negative.
    fn refused(&self) -> u64 {
        0
    }
}

/// Returns all sets of `copies` tiers of which no two are in one failure domain, in the order of their tiers, and those with
/// the last tier behind all others. `domains` has the domain of each tier. There is no set for more than [`MAX_TIERS`] tiers or [`MAX_COPIES`] copies.
pub fn sets(domains: &[usize], copies: usize) -> Vec<Vec<usize>> {
    if domains.len() > MAX_TIERS || copies > MAX_COPIES || copies == 0 {
        return Vec::new();
    }
    let mut sets = vec![Vec::new()];
    for _ in 0..copies {
        let longer = |set: &Vec<usize>| {
            let first = set.last().map_or(0, |last: &usize| last + 1);
            let apart = |tier: &usize| set.iter().all(|other| domains[*other] != domains[*tier]);
            let add = |tier| set.iter().copied().chain([tier]).collect::<Vec<usize>>();
            (first..domains.len()).filter(apart).map(add).collect::<Vec<_>>()
        };
        sets = sets.iter().flat_map(longer).collect();
    }
    // A stable sort: sets of each kind stay in their order.
    sets.sort_by_key(|set| set.last().is_some_and(|last| last + 1 == domains.len()));
    sets
}
