//! Plays the calls of a trace again with another number of execution streams.
//!
//! A discrete-event simulation of the targets: calls wait in the queue of a target for one of its streams (first come,
//! first served), work there, and some of the work holds the one lock of the backend. An origin issues a call as long after
//! the end of its last completed call as it did, so a client that waits for its answers goes faster when they come
//! faster. Durations of work and of messages are those of the trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::numbers::widened;
use super::view::Joined;
use crate::analysis::blocks::{Blocks, Estimate, ratio};

/// Waits for a database that are longer than this show the time between two holders; shorter ones are the cost of the
/// lock itself.
const MIN_WAIT_NS: u64 = 20_000;

/// The fewest waits from which the time of a hold is estimated.
const MIN_WAITS: usize = 20;

/// Seed of the intervals.
const SEED: u64 = 3;

/// A call as the simulation plays it, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Play {
    /// Number of the target among the targets.
    pub(super) target: usize,
    /// The process that made the call.
    pub(super) origin: u32,
    /// Begin, in ns after the first call.
    pub(super) start: u64,
    /// End at the origin, in the same way.
    pub(super) end: u64,
    /// From the begin to the arrival.
    pub(super) before: u64,
    /// Work outside of the lock.
    pub(super) work: u64,
    /// Work that holds the lock of the backend.
    pub(super) hold: u64,
    /// From the end of the handler to the end of the call, and the target's own calls.
    pub(super) after: u64,
}

/// The calls of a trace, ready to be played.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    pub(super) calls: Vec<Play>,
    /// The processes of the targets, by their numbers here.
    pub(super) targets: Vec<u32>,
}

impl Replay {
    /// Prepares calls, sorted by their begin.
    pub(super) fn new(joined: &[Joined]) -> Self {
        let mut replay = Self::default();
        let Some(first) = joined.first().map(|call| call.start) else { return replay };
        let holds = holds(joined);
        let mut numbers: HashMap<u32, usize> = HashMap::new();
        for call in joined {
            let target = *numbers.entry(call.target).or_insert_with(|| {
                replay.targets.push(call.target);
                replay.targets.len() - 1
            });
            let busy = call.own.saturating_sub(call.database_wait.unwrap_or(0));
            let hold = match call.database_wait {
                Some(_) => holds.get(&call.target).copied().unwrap_or(0).min(busy),
                None => 0,
            };
            let length = call.end.abs_diff(call.start);
            let before = call.arrived.saturating_sub(call.start).max(0).unsigned_abs().min(length);
            let stay = call.queue + call.own + call.children;
            replay.calls.push(Play {
                target,
                origin: call.origin,
                start: call.start.abs_diff(first),
                end: call.end.abs_diff(first),
                before,
                work: busy - hold,
                hold,
                after: length.saturating_sub(before + stay) + call.children,
            });
        }
        replay
    }

    /// The share of the time of all calls that another run saves, with its interval from blocks of time. Both runs have a
    /// number of streams for each target.
    pub(super) fn gain(&self, streams: &[usize], then: &Self, streams_then: &[usize]) -> Estimate {
        let mut blocks = Blocks::default();
        for (call, duration) in self.calls.iter().zip(self.durations(streams)) {
            blocks.add(call.start as i64, duration, duration);
        }
        for (call, duration) in then.calls.iter().zip(then.durations(streams_then)) {
            blocks.add(call.start as i64, -duration, 0.0);
        }
        widened(ratio(&blocks.filled(), SEED).unwrap_or_default())
    }

    /// The durations of all calls in ns, as the simulation has them.
    fn durations(&self, streams: &[usize]) -> Vec<f64> {
        let mut run = Run::new(self, streams);
        run.play();
        run.durations
    }
}

/// The time for which a call of each target holds the lock: while others wait, handlers end one hold apart.
fn holds(joined: &[Joined]) -> HashMap<u32, u64> {
    let mut by_target: HashMap<u32, Vec<(i64, u64)>> = HashMap::new();
    for call in joined {
        if let Some(wait) = call.database_wait {
            by_target.entry(call.target).or_default().push((call.served(), wait));
        }
    }
    let hold = |mut ends: Vec<(i64, u64)>| {
        ends.sort_unstable();
        let waited = ends.windows(2).filter(|pair| pair[1].1 >= MIN_WAIT_NS);
        let mut gaps: Vec<u64> = waited.map(|pair| pair[1].0.abs_diff(pair[0].0)).collect();
        gaps.sort_unstable();
        if gaps.len() < MIN_WAITS { 0 } else { gaps[gaps.len() / 2] }
    };
    by_target.into_iter().map(|(target, ends)| (target, hold(ends))).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The lock is free again: before arrivals of the same time.
    Released,
    Worked,
    Arrived,
    Ended,
}

#[derive(Clone, Default)]
struct Target {
    free: usize,
    queue: VecDeque<usize>,
    is_locked: bool,
    lock_queue: VecDeque<usize>,
}

struct Run<'r> {
    replay: &'r Replay,
    events: BinaryHeap<Reverse<(u64, Event, usize)>>,
    targets: Vec<Target>,
    starts: Vec<u64>,
    /// Calls that begin after another one ended, with the time between.
    followers: Vec<Vec<(usize, u64)>>,
    durations: Vec<f64>,
}

impl<'r> Run<'r> {
    fn new(replay: &'r Replay, streams: &[usize]) -> Self {
        let count = replay.calls.len();
        let mut run = Self {
            replay,
            events: BinaryHeap::new(),
            targets: streams
                .iter()
                .map(|free| Target { free: (*free).max(1), ..Target::default() })
                .collect(),
            starts: vec![0; count],
            followers: vec![Vec::new(); count],
            durations: vec![0.0; count],
        };
        let mut by_end: HashMap<u32, Vec<(u64, usize)>> = HashMap::new();
        for (at, call) in replay.calls.iter().enumerate() {
            by_end.entry(call.origin).or_default().push((call.end, at));
        }
        by_end.values_mut().for_each(|ends| ends.sort_unstable());
        for (at, call) in replay.calls.iter().enumerate() {
            let ends = by_end.get(&call.origin).map_or(&[][..], Vec::as_slice);
            let ended = ends.partition_point(|(end, _)| *end <= call.start);
            match ended.checked_sub(1).map(|last| ends[last]) {
                Some((end, last)) if last != at => {
                    run.followers[last].push((at, call.start - end));
                }
                _ => run.begin(at, call.start),
            }
        }
        run
    }

    fn begin(&mut self, at: usize, time: u64) {
        self.starts[at] = time;
        self.events.push(Reverse((time + self.replay.calls[at].before, Event::Arrived, at)));
    }

    fn play(&mut self) {
        while let Some(Reverse((time, event, at))) = self.events.pop() {
            let call = self.replay.calls[at];
            let Some(target) = self.targets.get_mut(call.target) else { continue };
            match event {
                Event::Arrived if target.free > 0 => {
                    target.free -= 1;
                    self.events.push(Reverse((time + call.work, Event::Worked, at)));
                }
                Event::Arrived => target.queue.push_back(at),
                Event::Worked if call.hold == 0 => self.served(at, time),
                Event::Worked if target.is_locked => target.lock_queue.push_back(at),
                Event::Worked => {
                    target.is_locked = true;
                    self.events.push(Reverse((time + call.hold, Event::Released, at)));
                }
                Event::Released => {
                    match target.lock_queue.pop_front() {
                        Some(next) => {
                            let hold = self.replay.calls[next].hold;
                            self.events.push(Reverse((time + hold, Event::Released, next)));
                        }
                        None => target.is_locked = false,
                    }
                    self.served(at, time);
                }
                Event::Ended => {
                    self.durations[at] = (time - self.starts[at]) as f64;
                    for (next, lag) in std::mem::take(&mut self.followers[at]) {
                        self.begin(next, time + lag);
                    }
                }
            }
        }
    }

    /// A handler ends: its stream takes the next call.
    fn served(&mut self, at: usize, time: u64) {
        let call = self.replay.calls[at];
        self.events.push(Reverse((time + call.after, Event::Ended, at)));
        let target = &mut self.targets[call.target];
        match target.queue.pop_front() {
            Some(next) => {
                let work = self.replay.calls[next].work;
                self.events.push(Reverse((time + work, Event::Worked, next)));
            }
            None => target.free += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Outcome {
        total: f64,
        length: f64,
    }

    impl Replay {
        fn run(&self, streams: &[usize]) -> Outcome {
            let mut run = Run::new(self, streams);
            run.play();
            let ends = run.starts.iter().zip(&run.durations).map(|(start, ns)| *start as f64 + ns);
            Outcome { total: run.durations.iter().sum(), length: ends.fold(0.0, f64::max) }
        }
    }

    fn call(origin: u32, start: i64, queue: u64, own: u64, wait: Option<u64>) -> Joined {
        let end = start + 20 + (queue + own) as i64;
        Joined {
            origin,
            target: 9,
            start,
            end,
            arrived: start + 10,
            queue,
            own,
            database_wait: wait,
            ..Joined::default()
        }
    }

    #[test]
    fn calls_that_came_at_once_wait_for_the_only_stream() {
        let calls: Vec<Joined> =
            (0..4).map(|n| call(n, 0, 100 * u64::from(n), 100, None)).collect();
        let replay = Replay::new(&calls);
        // 120 + 220 + 320 + 420, as in the trace.
        assert_eq!(replay.run(&[1]), Outcome { total: 1080.0, length: 420.0 });
        assert_eq!(replay.run(&[2]).total, 680.0);
        assert_eq!(replay.run(&[4]), Outcome { total: 480.0, length: 120.0 });
    }

    #[test]
    fn a_client_that_waits_for_its_answer_goes_faster() {
        let calls =
            [call(1, 0, 0, 100, None), call(2, 0, 100, 100, None), call(1, 150, 60, 100, None)];
        let replay = Replay::new(&calls);
        assert_eq!(replay.run(&[2]).length, 150.0 + 120.0);
        assert!(replay.run(&[1]).length > replay.run(&[2]).length);
    }

    #[test]
    fn a_lock_is_not_helped_by_streams() {
        // Each call holds the lock for 50 us after 10 us of work; 30 of them come at once.
        let calls: Vec<Joined> = (0..30)
            .map(|n| call(n, 0, 0, 60_000 + 50_000 * u64::from(n), Some(50_000 * u64::from(n))))
            .collect();
        let replay = Replay::new(&calls);
        assert_eq!(replay.calls[3].hold, 50_000);
        let few = replay.run(&[30]);
        assert_eq!(replay.run(&[60]), few);
        assert!((few.length - 1_510_020.0).abs() < 1.0, "{few:?}");
    }
}
