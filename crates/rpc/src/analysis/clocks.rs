//! Corrects clocks of machines that differ, with a bound.
//!
//! A target begins and ends a call while its origin waits. With θ as the target's clock minus the origin's, a call whose
//! origin has the times `[o1, o2]` and whose target has `[t1, t2]` says `t2 - o2 <= θ <= t1 - o1`. The intersection over
//! many calls of two machines gives θ with a bound; machines that never called each other are related through others,
//! and the bounds add up. Processes of one boot of a machine have one clock already.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::stream::Side;
use crate::file::Process;
use crate::interval::Interval;
use crate::record::Kind;

/// The most calls that are kept to relate clocks. Beyond, every second one is let go, and so on: the tightest of a
/// quarter of a million calls is as tight as the network allows.
const MAX_KEPT: usize = 1 << 18;

/// The disagreement of two processes of one machine that the calibration of their clocks explains.
const SAME_CLOCK_NS: i64 = 20_000;

/// The offset between the clocks of two processes, as their calls bound it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PairOffset {
    /// Number of the first process.
    pub first: u32,
    /// Number of the second process.
    pub second: u32,
    /// Calls between them that were compared.
    pub calls: u64,
    /// The least offset of the second clock to the first in ns that all calls allow.
    pub least_ns: i64,
    /// The greatest offset in ns that all calls allow. Below `least_ns` if no offset suits all calls: a clock drifted
    /// or was set.
    pub greatest_ns: i64,
}

/// The correction of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Correction {
    /// The offset in ns, which is subtracted from the process's times.
    pub offset_ns: i64,
    /// The greatest error of the process's corrected times against the common clock, in ns: that of the offset, and that of
    /// the process's own clock, which is never 0. `None` if no call relates the process to the reference.
    pub bound_ns: Option<u64>,
}

/// The corrections of all processes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Clocks {
    /// By the number of the process.
    pub corrections: Vec<Correction>,
    /// The pairs of processes that called each other.
    pub pairs: Vec<PairOffset>,
}

impl Clocks {
    /// Returns the time of a process on the common clock.
    #[inline]
    pub fn correct(&self, process: u32, time: i64) -> i64 {
        match self.corrections.get(process as usize) {
            Some(correction) => time.saturating_sub(correction.offset_ns),
            None => time,
        }
    }

    /// The greatest difference between the corrected clocks of two processes in ns; of one process, its own error. 0 only if
    /// no process is related to the common clock.
    pub fn bound_ns(&self) -> u64 {
        self.bound_of(0..self.corrections.len() as u32)
    }

    /// The same among some of the processes.
    pub fn bound_of(&self, processes: impl IntoIterator<Item = u32>) -> u64 {
        let distinct: BTreeSet<u32> = processes.into_iter().collect();
        let of = |process: u32| self.corrections.get(process as usize)?.bound_ns;
        let mut bounds: Vec<u64> = distinct.into_iter().filter_map(of).collect();
        bounds.sort_unstable_by(|a, b| b.cmp(a));
        bounds.into_iter().take(2).fold(0, u64::saturating_add)
    }

    /// Number of processes that no call relates to the others.
    pub fn unrelated(&self) -> usize {
        self.corrections.iter().filter(|c| c.bound_ns.is_none()).count()
    }
}

#[derive(Clone, Copy)]
struct Half {
    process: u32,
    start: i64,
    end: i64,
}

/// Collects calls with both sides. Chooses them by their id, so that both sides of a call are kept or let go.
#[derive(Default)]
pub(crate) struct Pairs {
    halves: HashMap<u64, (Option<Half>, Option<Half>)>,
    /// Bits of the mixed id that must be zero.
    mask: u64,
}

/// Mixes an id: neighbours in time must not share their low bits.
pub(crate) fn mix(id: u64) -> u64 {
    let id = (id ^ id >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    id ^ id >> 29
}

/// The end of the handler (t8) of a target, which is before its response; the end of an origin. A target's record may go
/// on until its response was sent (t13), when the origin has it already.
fn end_of_handler(side: &Side) -> i64 {
    let stay = match side.interval(Interval::TargetExecutionExclusive) {
        Some(own) if side.kind == Kind::Target => {
            let part = |interval| side.interval(interval).unwrap_or(0);
            let stay = own + part(Interval::TargetHandler) + part(Interval::Children);
            stay.min(side.duration)
        }
        _ => side.duration,
    };
    side.start.saturating_add_unsigned(stay)
}

impl Pairs {
    #[inline]
    pub(crate) fn add(&mut self, side: &Side) {
        if side.kind == Kind::Local || mix(side.span) & self.mask != 0 {
            return;
        }
        let half = Half { process: side.process, start: side.start, end: end_of_handler(side) };
        let pair = self.halves.entry(side.span).or_default();
        match side.kind {
            Kind::Origin => pair.0 = pair.0.or(Some(half)),
            _ => pair.1 = pair.1.or(Some(half)),
        }
        if self.halves.len() > MAX_KEPT {
            self.mask = self.mask << 1 | 1;
            let mask = self.mask;
            self.halves.retain(|span, _| mix(*span) & mask == 0);
        }
    }

    fn offsets(&self) -> Vec<PairOffset> {
        let mut pairs: BTreeMap<(u32, u32), PairOffset> = BTreeMap::new();
        for (origin, target) in self.halves.values() {
            let (Some(origin), Some(target)) = (origin, target) else { continue };
            if origin.process == target.process {
                continue;
            }
            let least = target.end.saturating_sub(origin.end);
            let greatest = target.start.saturating_sub(origin.start);
            let (first, second, least, greatest) = match origin.process < target.process {
                true => (origin.process, target.process, least, greatest),
                false => (target.process, origin.process, -greatest, -least),
            };
            let pair = pairs.entry((first, second)).or_insert(PairOffset {
                first,
                second,
                calls: 0,
                least_ns: i64::MIN,
                greatest_ns: i64::MAX,
            });
            pair.calls += 1;
            pair.least_ns = pair.least_ns.max(least);
            pair.greatest_ns = pair.greatest_ns.min(greatest);
        }
        pairs.into_values().collect()
    }

    /// Relates all processes to the first one of the greatest group. `errors` has the greatest error of each process's clock
    /// in ns, as the process recorded it.
    pub(crate) fn clocks(&self, processes: &[Process], errors: &[u64]) -> Clocks {
        let pairs = self.offsets();
        let domains = domains(processes, &pairs);
        let edges = edges(&domains, &pairs);
        let mut corrections = relate(&domains, &edges);
        for (process, correction) in corrections.iter_mut().enumerate() {
            // A reading of a clock takes some time, also where a recorder says that it took none.
            let error = errors.get(process).copied().unwrap_or(0).max(1);
            correction.bound_ns = correction.bound_ns.map(|bound| bound.saturating_add(error));
        }
        Clocks { corrections, pairs }
    }
}

/// The number of the clock of each process. Processes of one boot share a clock unless their calls contradict.
fn domains(processes: &[Process], pairs: &[PairOffset]) -> Vec<usize> {
    let same = |a: u32, b: u32| match (processes.get(a as usize), processes.get(b as usize)) {
        (Some(a), Some(b)) => !a.boot_id.is_empty() && a.boot_id == b.boot_id,
        _ => false,
    };
    let contradicts = |p: &&PairOffset| {
        same(p.first, p.second) && (p.least_ns > SAME_CLOCK_NS || p.greatest_ns < -SAME_CLOCK_NS)
    };
    let apart: Vec<&str> = pairs
        .iter()
        .filter(contradicts)
        .filter_map(|pair| processes.get(pair.first as usize))
        .map(|process| process.boot_id.as_str())
        .collect();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut next = 0;
    processes
        .iter()
        .map(|process| {
            let fresh = next;
            let boot = process.boot_id.as_str();
            let domain = match boot.is_empty() || apart.contains(&boot) {
                true => fresh,
                false => *known.entry(boot).or_insert(fresh),
            };
            next += usize::from(domain == fresh);
            domain
        })
        .collect()
}

/// The offset of one clock to another, and its bound.
struct Edge {
    from: usize,
    to: usize,
    offset: i64,
    bound: u64,
}

fn edges(domains: &[usize], pairs: &[PairOffset]) -> Vec<Edge> {
    let mut bounds: BTreeMap<(usize, usize), (i64, i64)> = BTreeMap::new();
    for pair in pairs {
        let (Some(&a), Some(&b)) =
            (domains.get(pair.first as usize), domains.get(pair.second as usize))
        else {
            continue;
        };
        let (key, least, greatest) = match a.cmp(&b) {
            std::cmp::Ordering::Equal => continue,
            std::cmp::Ordering::Less => ((a, b), pair.least_ns, pair.greatest_ns),
            std::cmp::Ordering::Greater => {
                ((b, a), pair.greatest_ns.saturating_neg(), pair.least_ns.saturating_neg())
            }
        };
        let bound = bounds.entry(key).or_insert((i64::MIN, i64::MAX));
        *bound = (bound.0.max(least), bound.1.min(greatest));
    }
    let edge = |((from, to), (least, greatest)): ((usize, usize), (i64, i64))| {
        // Halves first: the sum may be too large.
        let offset = least / 2 + greatest / 2;
        Edge { from, to, offset, bound: least.abs_diff(greatest) / 2 + 1 }
    };
    bounds.into_iter().map(edge).collect()
}

/// Walks from the clock with the most processes along the tightest edges.
fn relate(domains: &[usize], edges: &[Edge]) -> Vec<Correction> {
    let count = domains.iter().max().map_or(0, |most| most + 1);
    let mut sizes = vec![0_usize; count];
    domains.iter().for_each(|domain| sizes[*domain] += 1);
    let Some(reference) = (0..count).max_by_key(|domain| (sizes[*domain], count - domain)) else {
        return Vec::new();
    };
    let mut known: Vec<Option<(i64, u64)>> = vec![None; count];
    known[reference] = Some((0, 0));
    loop {
        let reach = |edge: &Edge| {
            let (known_end, fresh, sign) = match (known[edge.from], known[edge.to]) {
                (Some(known), None) => (known, edge.to, 1),
                (None, Some(known)) => (known, edge.from, -1),
                _ => return None,
            };
            let offset = known_end.0.saturating_add(sign * edge.offset);
            Some((known_end.1.saturating_add(edge.bound), fresh, offset))
        };
        let Some((bound, fresh, offset)) = edges.iter().filter_map(reach).min() else { break };
        known[fresh] = Some((offset, bound));
    }
    domains
        .iter()
        .map(|domain| match known[*domain] {
            Some((offset_ns, bound)) => Correction { offset_ns, bound_ns: Some(bound) },
            None => Correction::default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(boot_id: &str) -> Process {
        Process { boot_id: boot_id.to_owned(), ..Process::default() }
    }

    fn pairs(calls: &[(u32, [i64; 2], u32, [i64; 2])]) -> Pairs {
        let mut pairs = Pairs::default();
        for (span, (origin, [o1, o2], target, [t1, t2])) in calls.iter().enumerate() {
            let origin = Half { process: *origin, start: *o1, end: *o2 };
            let target = Half { process: *target, start: *t1, end: *t2 };
            pairs.halves.insert(span as u64, (Some(origin), Some(target)));
        }
        pairs
    }

    #[test]
    fn the_offset_of_a_chain_of_clocks_has_the_sum_of_the_bounds() {
        // The clock of b is 5 s ahead of a, that of c 2 s behind b. c never talks to a.
        const S: i64 = 1_000_000_000;
        let calls = [
            (0, [0, 1000], 1, [5 * S + 100, 5 * S + 900]),
            (0, [2000, 2600], 1, [5 * S + 2250, 5 * S + 2550]),
            (2, [3 * S, 3 * S + 100], 1, [5 * S + 10, 5 * S + 60]),
        ];
        let clocks = pairs(&calls).clocks(&[process("a"), process("b"), process("c")], &[]);
        let [a, b, c] = clocks.corrections[..] else { panic!("three processes") };
        assert_eq!(a, Correction { offset_ns: 0, bound_ns: Some(1) });
        assert!(b.offset_ns.abs_diff(5 * S) <= b.bound_ns.unwrap() && b.bound_ns.unwrap() <= 101);
        assert!(c.offset_ns.abs_diff(3 * S) <= c.bound_ns.unwrap());
        assert!(c.bound_ns.unwrap() > b.bound_ns.unwrap());
        assert_eq!(clocks.correct(1, 5 * S), 5 * S - b.offset_ns);
    }

    #[test]
    fn processes_of_one_boot_are_not_corrected_unless_their_calls_contradict() {
        let near = [(0, [0, 1000], 1, [10, 300])];
        // They agree as well as each of them knows the machine's clock, and not without any error.
        let clocks = pairs(&near).clocks(&[process("a"), process("a")], &[40, 300]);
        assert_eq!(clocks.corrections[1], Correction { offset_ns: 0, bound_ns: Some(300) });
        assert_eq!((clocks.bound_ns(), clocks.bound_of([0, 0])), (340, 40));
        let far = [(0, [0, 1000], 1, [1_000_000, 1_000_500])];
        let clocks = pairs(&far).clocks(&[process("a"), process("a")], &[]);
        assert!(clocks.corrections[1].offset_ns > 900_000);
    }

    #[test]
    fn a_process_without_calls_is_unrelated() {
        let clocks = pairs(&[]).clocks(&[process("a"), process("b")], &[]);
        assert_eq!(clocks.unrelated(), 1);
        assert!(pairs(&[]).clocks(&[], &[]).corrections.is_empty());
    }
}
