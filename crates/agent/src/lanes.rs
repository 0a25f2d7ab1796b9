//! Threads for polls that may never return: a mount that hangs, a device that does not answer, a
//! program that waits.
//!
//! The agent's own thread polls what reads kernel memory. A sensor that says
//! [`may_block`](skopos_sense::Sensor::may_block) is lent to a lane, with its facts, and comes back
//! with what it found. One lane serves all of them in turn as long as each comes back before the
//! next is due; another is started only when all are busy. A sensor that does not come back is
//! shown as such and costs its lane, nothing else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use skopos_model::Timestamp;

use crate::probe::{Polling, Probe, thread_time};
use skopos_term::Failure;

/// The most lanes: more than there are sensors that may block. A ninth that hangs would find none,
/// which is an error of its poll.
const MAX_LANES: usize = 8;

/// Stack of a lane: sensors read into buffers of their own, and a thread that hangs for ever should
/// not cost much.
const STACK_BYTES: usize = 256 << 10;

/// The lanes there are.
pub(crate) struct Lanes {
    idle: Vec<Lane>,
    /// By the number that came with the probe.
    busy: Vec<(usize, Lane)>,
    done: (Sender<Done>, Receiver<Done>),
    bell: Arc<OwnedFd>,
    has_news: bool,
}

struct Lane {
    jobs: Sender<Job>,
}

struct Job {
    number: usize,
    probe: Box<Probe>,
    times: (Timestamp, Duration),
}

/// A probe that no lane took.
pub(crate) struct Refused {
    pub probe: Box<Probe>,
    /// Why none did.
    pub reason: String,
}

/// A probe that came back.
pub(crate) struct Done {
    /// The number that it was lent with.
    pub number: usize,
    pub probe: Box<Probe>,
    pub polling: Polling,
}

impl Lanes {
    pub(crate) fn new() -> Result<Self, Failure> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|e| Failure::new("cannot make an event descriptor").because(&e))?;
        let (idle, busy) = (Vec::new(), Vec::new());
        Ok(Self { idle, busy, done: channel(), bell: Arc::new(bell), has_news: false })
    }

    /// Readable when a probe has come back.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Has `probe` polled in a lane. Gives it back if there is none for it, to be tried again later.
    pub(crate) fn lend(
        &mut self,
        number: usize,
        probe: Box<Probe>,
        times: (Timestamp, Duration),
    ) -> Result<(), Refused> {
        let lane = match self.idle.pop().map_or_else(|| self.start(), Ok) {
            Ok(lane) => lane,
            Err(reason) => return Err(Refused { probe, reason }),
        };
        match lane.jobs.send(Job { number, probe, times }) {
            Ok(()) => {
                self.busy.push((number, lane));
                Ok(())
            }
            Err(SendError(Job { probe, .. })) => {
                Err(Refused { probe, reason: "its lane has ended".to_owned() })
            }
        }
    }

    /// Another lane, or why there is none.
    fn start(&self) -> Result<Lane, String> {
        if self.busy.len() >= MAX_LANES {
            return Err(format!("all {MAX_LANES} lanes wait for something that hangs"));
        }
        let (jobs, queue) = channel::<Job>();
        let (done, bell) = (self.done.0.clone(), Arc::clone(&self.bell));
        let run = move || {
            for Job { number, mut probe, times } in queue {
                let polling = probe.poll(times, &mut thread_time());
                if done.send(Done { number, probe, polling }).is_err() {
                    return;
                }
                // It can only be full if nobody has emptied it for 2^64 polls.
                let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
            }
        };
        let builder = thread::Builder::new().name("skopos-lane".into()).stack_size(STACK_BYTES);
        match builder.spawn(run) {
            Ok(_) => Ok(Lane { jobs }),
            Err(e) => Err(format!("no lane can be started: {e}")),
        }
    }

    /// The descriptor was readable.
    pub(crate) fn note_news(&mut self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
        self.has_news = true;
    }

    /// True from [`note_news`](Self::note_news) until all that came back was taken.
    pub(crate) fn has_news(&self) -> bool {
        self.has_news
    }

    /// How many are at work or hang.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// A probe that has come back, if one has.
    pub(crate) fn take(&mut self) -> Option<Done> {
        self.has_news = false;
        let done = self.done.1.try_recv().ok()?;
        Some(self.returned(done))
    }

    /// As [`take`](Self::take), waiting at most so long for it.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<Done> {
        if self.busy.is_empty() {
            return None;
        }
        let done = self.done.1.recv_timeout(patience).ok()?;
        Some(self.returned(done))
    }

    fn returned(&mut self, done: Done) -> Done {
        if let Some(at) = self.busy.iter().position(|(number, _)| *number == done.number) {
            let (_, lane) = self.busy.swap_remove(at);
            // One is enough while nothing hangs; the thread of another ends with its sender.
            if self.idle.is_empty() {
                self.idle.push(lane);
            }
        }
        done
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
    use crate::agent::Event;
    use crate::polled::{Polled, Schedule};

    /// How long anything may take before a test gives up.
    const GIVE_UP: Duration = Duration::from_secs(60);

    /// What a poll is to come to.
    enum Pass {
        Well,
        Panic,
    }

    /// Every poll takes a pass, and waits until there is one; without the giver it fails.
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

    /// A publisher, and lanes for sensors of it.
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

        fn sensor(&self, name: &'static str) -> (Polled, Sender<Pass>) {
            self.sensor_of(name, Duration::from_secs(10))
        }

        fn sensor_of(&self, name: &'static str, patience: Duration) -> (Polled, Sender<Pass>) {
            let (pass, gate) = channel();
            let sensor = Box::new(Gated { gate, patience });
            let probe = Probe::new(&self.publisher, &name.into(), sensor);
            let second = Duration::from_secs(1);
            let policy = Box::new(Fixed::new(second));
            let when = Schedule { policy, shortest: second, longest: second };
            (Polled::new(name, true, Box::new(probe.expect("room")), when), pass)
        }

        fn lend(&mut self, number: usize, polled: &mut Polled, now: Duration) {
            let probe = polled.take(now).expect("it is here");
            let times = (Timestamp::from_nanos(1), now);
            assert!(self.lanes.lend(number, probe, times).is_ok(), "a lane is free");
        }
    }

    #[test]
    fn a_sensor_that_hangs_is_cut_off_and_shown_while_others_are_polled_and_comes_back() {
        let mut all = Setting::new();
        let (mut stuck, pass_stuck) = all.sensor("stuck");
        let (mut well, pass_well) = all.sensor("well");
        let (mut events, start) = (Vec::new(), Duration::from_secs(100));
        all.lend(0, &mut stuck, start);
        for polls in 1..=3 {
            let now = start + Duration::from_secs(polls);
            all.lend(1, &mut well, now);
            pass_well.send(Pass::Well).expect("it waits");
            let done = all.lanes.wait(GIVE_UP).expect("one comes back");
            assert_eq!(done.number, 1);
            well.returned(done.probe, done.polling, &mut events);
            assert_eq!((well.cost().polls, well.error()), (polls, None));
            assert_eq!(all.lanes.busy(), 1, "the other hangs");
            stuck.watch(now, &mut events);
        }
        assert!(events.is_empty(), "a few seconds are nothing to be shown");

        let later = start + Duration::from_secs(3600);
        stuck.watch(later, &mut events);
        stuck.watch(later, &mut events);
        assert!(matches!(&events[..], [Event::SensorFailed { sensor: "stuck", .. }]), "told once");
        let error = stuck.error().expect("it is shown");
        assert!(error.starts_with("has not answered for 10 s"), "{error}");
        assert_eq!(stuck.cost().errors, 1);
        assert_eq!(stuck.due(), Duration::MAX, "it is not asked again meanwhile");

        events.clear();
        pass_stuck.send(Pass::Well).expect("it waits");
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        assert_eq!(done.number, 0);
        stuck.returned(done.probe, done.polling, &mut events);
        assert!(matches!(&events[..], [Event::SensorRecovered { sensor: "stuck" }]));
        assert_eq!((stuck.error(), all.lanes.busy()), (None, 0));
        assert!(stuck.due() < Duration::MAX, "it is polled again");
        assert_eq!(stuck.cost().errors, 1);
    }

    #[test]
    fn a_poll_that_is_cut_off_and_fails_at_last_is_one_error() {
        let mut all = Setting::new();
        let (mut stuck, pass) = all.sensor("stuck");
        let mut events = Vec::new();
        all.lend(0, &mut stuck, Duration::from_secs(100));
        stuck.watch(Duration::from_secs(3700), &mut events);
        drop(pass);
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        stuck.returned(done.probe, done.polling, &mut events);
        assert_eq!((stuck.cost().polls, stuck.cost().errors), (1, 1));
        assert!(stuck.error().is_some_and(|e| !e.contains("answered")), "{:?}", stuck.error());
        all.lend(0, &mut stuck, Duration::from_secs(3701));
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        stuck.returned(done.probe, done.polling, &mut events);
        assert_eq!((stuck.cost().polls, stuck.cost().errors), (2, 2), "the next is another");
    }

    #[test]
    fn a_sensor_that_may_take_long_is_not_cut_off_before() {
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
    fn a_sensor_that_panics_is_shown_and_not_asked_again_and_its_lane_serves_the_others() {
        let mut all = Setting::new();
        let (mut broken, pass_broken) = all.sensor("broken");
        let (mut well, pass_well) = all.sensor("well");
        let (mut events, now) = (Vec::new(), Duration::from_secs(100));
        pass_broken.send(Pass::Panic).expect("it waits");
        all.lend(0, &mut broken, now);
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        broken.returned(done.probe, done.polling, &mut events);
        assert!(matches!(&events[..], [Event::SensorFailed { sensor: "broken", .. }]), "told once");
        let reason = "the sensor failed inside: it is not polled any more";
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
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        well.returned(done.probe, done.polling, &mut events);
        assert_eq!((well.error(), well.cost().polls), (None, 1));
    }

    #[test]
    fn no_more_than_the_most_lanes_are_started_and_one_that_is_freed_serves_the_next() {
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
        let reason = "all 8 lanes wait for something that hangs";
        assert_eq!((last.error(), last.cost().errors), (Some(reason), 1));
        assert!(matches!(&events[..], [Event::SensorFailed { sensor: "i", .. }]), "{events:?}");

        sensors[3].1.send(Pass::Well).expect("it waits");
        assert_eq!(all.lanes.wait(GIVE_UP).expect("one comes back").number, 3);
        all.lend(MAX_LANES, &mut sensors[MAX_LANES].0, now);
        sensors[MAX_LANES].1.send(Pass::Well).expect("it waits");
        let done = all.lanes.wait(GIVE_UP).expect("it comes back");
        assert_eq!(done.number, MAX_LANES);
        let last = &mut sensors[MAX_LANES].0;
        last.returned(done.probe, done.polling, &mut events);
        assert_eq!((last.error(), last.cost().errors), (None, 1), "it was one poll that failed");
    }
}
