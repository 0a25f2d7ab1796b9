//! Threads for polls that may never return: a mount that hangs, a device that does not answer, a
//! program that waits.
//!
//! The agent's own thread polls the sensors that read kernel memory. A sensor whose
//! [`may_block`](skopos_sense::Sensor::may_block) is true is lent to a lane, with its facts, and returns with
//! its values. One lane serves these sensors in turn while each returns before the next is due; another lane
//! is started only if all are busy. A sensor that does not return is reported, and occupies its lane.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use skopos_model::Timestamp;

use crate::probe::{PollOutcome, Probe};
use skopos_term::Failure;

/// Largest number of lanes: more than the sensors that may block. If eight sensors hang, the poll of a ninth
/// is an error.
const MAX_LANES: usize = 8;

/// Stack of a lane: sensors read into buffers of their own, and a thread that hangs for ever should be cheap.
const STACK_BYTES: usize = 256 << 10;

/// The lanes of an agent.
pub(crate) struct Lanes {
    idle: Vec<Lane>,
    /// Each with the number of the probe that it has.
    busy: Vec<(usize, Lane)>,
    finished: (Sender<FinishedPoll>, Receiver<FinishedPoll>),
    /// An eventfd that a lane writes when a probe returns.
    bell: Arc<OwnedFd>,
    has_returned: bool,
}

struct Lane {
    jobs: Sender<Job>,
}

struct Job {
    number: usize,
    probe: Box<Probe>,
    times: (Timestamp, Duration),
}

/// A probe for which there is no lane.
pub(crate) struct RefusedProbe {
    pub probe: Box<Probe>,
    /// The reason.
    pub reason: String,
}

/// A probe that returned from a lane.
pub(crate) struct FinishedPoll {
    /// The number with which it was lent.
    pub number: usize,
    pub probe: Box<Probe>,
    pub outcome: PollOutcome,
}

impl Lanes {
    pub(crate) fn new() -> Result<Self, Failure> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| Failure::new("cannot make an event descriptor").because(&e))?;
        let (idle, busy) = (Vec::new(), Vec::new());
        Ok(Self { idle, busy, finished: channel(), bell: Arc::new(bell), has_returned: false })
    }

    /// Returns a descriptor that is readable when a probe has returned.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has `probe` polled in a lane. Returns the probe if there is no lane for it; the caller tries again later.
    pub(crate) fn lend(
        &mut self,
        number: usize,
        probe: Box<Probe>,
        times: (Timestamp, Duration),
    ) -> Result<(), RefusedProbe> {
        let lane = match self.idle.pop().map_or_else(|| self.start(), Ok) {
            Ok(lane) => lane,
            Err(reason) => return Err(RefusedProbe { probe, reason }),
        };
        match lane.jobs.send(Job { number, probe, times }) {
            Ok(()) => {
                self.busy.push((number, lane));
                Ok(())
            }
            Err(SendError(Job { probe, .. })) => {
                Err(RefusedProbe { probe, reason: "its lane has ended".to_owned() })
            }
        }
    }

    /// Starts another lane, or returns the reason why it cannot.
    fn start(&self) -> Result<Lane, String> {
        if self.busy.len() >= MAX_LANES {
            return Err(format!("all {MAX_LANES} lanes wait for sources that hang"));
        }
        let (jobs, queue) = channel::<Job>();
        let (finished, bell) = (self.finished.0.clone(), Arc::clone(&self.bell));
        let run = move || {
            for Job { number, mut probe, times } in queue {
                let outcome = probe.poll_alone(times);
                if finished.send(FinishedPoll { number, probe, outcome }).is_err() {
                    return;
                }
                // The counter can only be full after 2^64 polls.
                let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
            }
        };
        let builder = thread::Builder::new().name("skopos-lane".into()).stack_size(STACK_BYTES);
        match builder.spawn(run) {
            Ok(_) => Ok(Lane { jobs }),
            Err(e) => Err(format!("a lane cannot be started: {e}")),
        }
    }

    /// Notes that the descriptor was readable.
    pub(crate) fn note_returned(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.has_returned = true;
    }

    /// Returns true from [`note_returned`](Self::note_returned) until the next [`take`](Self::take).
    pub(crate) fn has_returned(&self) -> bool {
        self.has_returned
    }

    /// Returns the number of lanes that work or hang.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Takes a probe that has returned.
    pub(crate) fn take(&mut self) -> Option<FinishedPoll> {
        self.has_returned = false;
        let poll = self.finished.1.try_recv().ok()?;
        Some(self.returned(poll))
    }

    /// Takes a probe that has returned, or waits for one up to `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<FinishedPoll> {
        if self.busy.is_empty() {
            return None;
        }
        let poll = self.finished.1.recv_timeout(patience).ok()?;
        Some(self.returned(poll))
    }

    fn returned(&mut self, poll: FinishedPoll) -> FinishedPoll {
        if let Some(at) = self.busy.iter().position(|(number, _)| *number == poll.number) {
            let (_, lane) = self.busy.swap_remove(at);
            // One idle lane is enough; the thread of another ends with its sender.
            if self.idle.is_empty() {
                self.idle.push(lane);
            }
        }
        poll
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use skopos_model::schema::Family;
    use skopos_model::schema::load::{FAMILY, LOAD_1M};
    use skopos_score::interval::Fixed;
    use skopos_sense::{Sensor, Tick};
    use skopos_shm::Publisher;

    use super::*;
    use crate::event::Event;
    use crate::polled::{PolledSensor, Schedule};

    /// Timeout of each step of a test.
    const GIVE_UP: Duration = Duration::from_secs(60);

    /// The wanted result of a poll.
    enum Pass {
        Well,
        Panic,
    }

    /// A sensor whose polls wait for a pass, and fail once the sender is gone.
    struct Gated {
        gate: Receiver<Pass>,
        patience: Duration,
    }

    impl Sensor for Gated {
        fn family(&self) -> &'static Family {
            &FAMILY
        }

        fn poll(&mut self, tick: &mut Tick<'_>) -> io::Result<()> {
            match self.gate.recv().map_err(io::Error::other)? {
                Pass::Well => {}
                Pass::Panic => panic!("meant to"),
            }
            let id = tick.sink.register(&LOAD_1M, "");
            tick.set(id, 1.5);
            tick.sink.unregister(id);
            Ok(())
        }

        fn patience(&self) -> Duration {
            self.patience
        }
    }

    /// A publisher, and lanes for its sensors.
    struct Setting {
        publisher: Publisher,
        lanes: Lanes,
        _folder: tempfile::TempDir,
    }

    impl Setting {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let publisher = Publisher::builder("lanes").dir(folder.path()).create();
            let lanes = Lanes::new().expect("an event descriptor");
            Self { publisher: publisher.expect("a segment"), lanes, _folder: folder }
        }

        fn sensor(&self, name: &'static str) -> (PolledSensor, Sender<Pass>) {
            self.sensor_of(name, Duration::from_secs(10))
        }

        fn sensor_of(
            &self,
            name: &'static str,
            patience: Duration,
        ) -> (PolledSensor, Sender<Pass>) {
            let (pass, gate) = channel();
            let sensor = Box::new(Gated { gate, patience });
            let probe = Probe::new(&self.publisher, &name.into(), sensor);
            let second = Duration::from_secs(1);
            let policy = Box::new(Fixed::new(second));
            let when = Schedule { policy, shortest: second, longest: second };
            (PolledSensor::new(name, true, Box::new(probe.expect("room")), when), pass)
        }

        fn lend(&mut self, number: usize, polled: &mut PolledSensor, now: Duration) {
            let probe = polled.take(now).expect("it is here");
            let times = (Timestamp::from_nanos(1), now);
            assert!(self.lanes.lend(number, probe, times).is_ok(), "a lane is free");
        }
    }

    #[test]
    fn a_sensor_that_hangs_is_reported_while_others_are_polled_and_can_return() {
        let mut all = Setting::new();
        let (mut stuck, pass_stuck) = all.sensor("stuck");
        let (mut well, pass_well) = all.sensor("well");
        let (mut events, start) = (Vec::new(), Duration::from_secs(100));
        all.lend(0, &mut stuck, start);
        for polls in 1..=3 {
            let now = start + Duration::from_secs(polls);
            all.lend(1, &mut well, now);
            pass_well.send(Pass::Well).expect("it waits");
            let poll = all.lanes.wait(GIVE_UP).expect("one comes back");
            assert_eq!(poll.number, 1);
            well.returned(poll.probe, poll.outcome, &mut events);
            assert_eq!((well.cost().polls, well.error()), (polls, None));
            assert_eq!(all.lanes.busy(), 1, "the other hangs");
            stuck.watch(now, &mut events);
        }
        assert!(events.is_empty(), "a few seconds are not reported");

        let later = start + Duration::from_secs(3600);
        stuck.watch(later, &mut events);
        stuck.watch(later, &mut events);
        assert!(
            matches!(&events[..], [Event::SensorFailed { sensor: "stuck", .. }]),
            "reported once"
        );
        let error = stuck.error().expect("it is shown");
        assert!(error.starts_with("has not answered for 10 s"), "{error}");
        assert_eq!(stuck.cost().errors, 1);
        assert_eq!(stuck.due(), Duration::MAX, "it is not asked again meanwhile");

        events.clear();
        pass_stuck.send(Pass::Well).expect("it waits");
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        assert_eq!(poll.number, 0);
        stuck.returned(poll.probe, poll.outcome, &mut events);
        assert!(matches!(&events[..], [Event::SensorRecovered { sensor: "stuck" }]));
        assert_eq!((stuck.error(), all.lanes.busy()), (None, 0));
        assert!(stuck.due() < Duration::MAX, "it is polled again");
        assert_eq!(stuck.cost().errors, 1);
    }

    #[test]
    fn a_poll_that_hangs_and_then_fails_is_a_single_error() {
        let mut all = Setting::new();
        let (mut stuck, pass) = all.sensor("stuck");
        let mut events = Vec::new();
        all.lend(0, &mut stuck, Duration::from_secs(100));
        stuck.watch(Duration::from_secs(3700), &mut events);
        drop(pass);
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        stuck.returned(poll.probe, poll.outcome, &mut events);
        assert_eq!((stuck.cost().polls, stuck.cost().errors), (1, 1));
        assert!(stuck.error().is_some_and(|e| !e.contains("answered")), "{:?}", stuck.error());
        all.lend(0, &mut stuck, Duration::from_secs(3701));
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        stuck.returned(poll.probe, poll.outcome, &mut events);
        assert_eq!((stuck.cost().polls, stuck.cost().errors), (2, 2), "the next is another");
    }

    #[test]
    fn a_sensor_with_a_longer_patience_is_reported_later() {
        let mut all = Setting::new();
        let (mut slow, pass) = all.sensor_of("slow", Duration::from_secs(65));
        let (mut events, start) = (Vec::new(), Duration::from_secs(100));
        all.lend(0, &mut slow, start);
        slow.watch(start + Duration::from_secs(65), &mut events);
        assert_eq!((slow.error(), slow.cost().errors), (None, 0));
        slow.watch(start + Duration::from_secs(66), &mut events);
        let error = slow.error().expect("it is shown");
        assert!(error.starts_with("has not answered for 65 s"), "{error}");
        drop(pass);
    }

    #[test]
    fn a_sensor_that_panics_is_reported_and_its_lane_serves_the_others() {
        let mut all = Setting::new();
        let (mut broken, pass_broken) = all.sensor("broken");
        let (mut well, pass_well) = all.sensor("well");
        let (mut events, now) = (Vec::new(), Duration::from_secs(100));
        pass_broken.send(Pass::Panic).expect("it waits");
        all.lend(0, &mut broken, now);
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        broken.returned(poll.probe, poll.outcome, &mut events);
        assert!(
            matches!(&events[..], [Event::SensorFailed { sensor: "broken", .. }]),
            "reported once"
        );
        let reason = "the sensor panicked: it is not polled any more";
        assert_eq!((broken.error(), broken.cost().errors), (Some(reason), 1));
        let later = now + Duration::from_secs(3600);
        broken.note_interest((0, true), later);
        broken.watch(later, &mut events);
        assert_eq!(broken.due(), Duration::MAX);
        assert!(broken.take(later).is_none());
        assert_eq!((broken.error(), broken.cost().errors), (Some(reason), 1), "counted once");

        assert_eq!(all.lanes.busy(), 0);
        pass_well.send(Pass::Well).expect("it waits");
        all.lend(1, &mut well, now);
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        well.returned(poll.probe, poll.outcome, &mut events);
        assert_eq!((well.error(), well.cost().polls), (None, 1));
    }

    #[test]
    fn the_number_of_lanes_is_bounded_and_a_freed_lane_serves_the_next_sensor() {
        let mut all = Setting::new();
        let now = Duration::from_secs(1);
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        let mut sensors: Vec<_> = names.iter().map(|name| all.sensor(name)).collect();
        assert_eq!(sensors.len(), MAX_LANES + 1);
        for (number, (polled, _)) in sensors.iter_mut().enumerate().take(MAX_LANES) {
            all.lend(number, polled, now);
        }
        let (last, _) = &mut sensors[MAX_LANES];
        let probe = last.take(now).expect("it is here");
        let refused = all.lanes.lend(MAX_LANES, probe, (Timestamp::from_nanos(1), now));
        let refused = refused.expect_err("all lanes are busy");
        let mut events = Vec::new();
        last.postponed(refused, now, &mut events);
        assert_eq!(last.due(), Duration::from_secs(2));
        let reason = "all 8 lanes wait for sources that hang";
        assert_eq!((last.error(), last.cost().errors), (Some(reason), 1));
        assert!(matches!(&events[..], [Event::SensorFailed { sensor: "i", .. }]), "{events:?}");

        sensors[3].1.send(Pass::Well).expect("it waits");
        assert_eq!(all.lanes.wait(GIVE_UP).expect("one comes back").number, 3);
        all.lend(MAX_LANES, &mut sensors[MAX_LANES].0, now);
        sensors[MAX_LANES].1.send(Pass::Well).expect("it waits");
        let poll = all.lanes.wait(GIVE_UP).expect("it comes back");
        assert_eq!(poll.number, MAX_LANES);
        let last = &mut sensors[MAX_LANES].0;
        last.returned(poll.probe, poll.outcome, &mut events);
        assert_eq!((last.error(), last.cost().errors), (None, 1), "a single poll failed");
    }
}
