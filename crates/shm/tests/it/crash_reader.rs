//! The readers of the crash test: they check every value that they get.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use skopos_model::{Sample, SplitMix64, Value};
use skopos_shm::{Delivery, Error, Segment, Subscription, Vertex, snapshot};

use crate::crash_child::{Recipe, STAYING, base, churn_value, ticket_of};
use crate::support::{at, topic};

/// Counts of the checks, so that the test can tell that each check ran.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) latest: AtomicU64,
    pub(crate) oldest: AtomicU64,
    pub(crate) delivered: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) ranges: AtomicU64,
    pub(crate) as_of: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) churned: AtomicU64,
    pub(crate) woken: AtomicU64,
    pub(crate) remains: AtomicU64,
}

impl Checked {
    pub(crate) fn all(&self) -> [(&'static str, u64); 10] {
        [
            ("latest", &self.latest),
            ("oldest", &self.oldest),
            ("delivered", &self.delivered),
            ("lost", &self.lost),
            ("ranges", &self.ranges),
            ("as_of", &self.as_of),
            ("snapshots", &self.snapshots),
            ("churned", &self.churned),
            ("woken", &self.woken),
            ("remains", &self.remains),
        ]
        .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// One vertex and the state of its reader.
struct Followed {
    vertex: Vertex,
    recipe: Recipe,
    subscription: Subscription,
    /// The ticket that the subscription delivers or loses next; `None` before the first sample.
    next: Option<u64>,
    /// The newest ticket that any read returned.
    newest: u64,
    /// The newest time of a vertex whose tickets are unknown, and the last number of each producer.
    shared: (i64, HashMap<u64, u64>),
}

impl Followed {
    fn new(vertex: Vertex, recipe: Recipe) -> Self {
        let subscription = vertex.subscribe_from_oldest();
        let shared = (i64::MIN, HashMap::new());
        Self { vertex, recipe, subscription, next: None, newest: 0, shared }
    }

    /// Fails unless the sample is complete. Returns its ticket, if the value has it.
    fn whole(&self, life: u64, sample: &Sample) -> Option<u64> {
        if self.recipe == Recipe::Shared {
            let Value::U64(value) = sample.value else { panic!("wrong type: {sample:?}") };
            let time = sample.time.as_nanos();
            assert!(matches!(value >> 56, 1 | 2) && time >= base(life), "torn: {sample:?}");
            return None;
        }
        let ticket = ticket_of(self.recipe, life, sample);
        assert!(ticket.is_some(), "torn: {} in life {life}: {sample:?}", self.vertex.topic());
        ticket
    }

    fn latest(&mut self, life: u64, checked: &Checked) -> Result<(), Error> {
        let reading = match self.vertex.latest() {
            Ok(reading) => reading,
            Err(Error::Empty(_)) if self.newest == 0 => return Ok(()),
            // A small ring can be lapped for ever if the scheduler does not let the reader run.
            Err(Error::Busy(_)) => return Ok(()),
            Err(e) => return Err(e),
        };
        assert!(reading.checked_at >= reading.sample.time, "checked before the sample's time");
        if let Some(ticket) = self.whole(life, &reading.sample) {
            assert!(ticket >= self.newest, "{} went back", self.vertex.topic());
            self.newest = ticket;
        } else {
            let time = reading.sample.time.as_nanos();
            assert!(time >= self.shared.0, "time went back");
            self.shared.0 = time;
        }
        add(&checked.latest, 1);
        Ok(())
    }

    fn delivery(&mut self, life: u64, delivery: Delivery, checked: &Checked) {
        let sample = match delivery {
            Delivery::Lost(lost) => {
                assert!(lost > 0, "a loss of zero samples");
                add(&checked.lost, lost);
                self.next = self.next.map(|next| next + lost);
                return;
            }
            Delivery::Sample(sample) => sample,
        };
        add(&checked.delivered, 1);
        if let Some(ticket) = self.whole(life, &sample) {
            let topic = self.vertex.topic();
            assert_eq!(ticket, self.next.unwrap_or(ticket), "{topic}: samples and losses");
            self.next = Some(ticket + 1);
            self.newest = self.newest.max(ticket);
            return;
        }
        let Value::U64(value) = sample.value else { unreachable!("checked by `whole`") };
        let (producer, count) = (value >> 56, value & ((1 << 56) - 1));
        let before = self.shared.1.insert(producer, count);
        assert!(
            before.is_none_or(|before| before < count),
            "samples of one producer are out of order: {sample:?}"
        );
    }

    fn drain(&mut self, life: u64, most: u32, checked: &Checked) -> Result<(), Error> {
        for _ in 0..most {
            match self.subscription.try_next()? {
                Some(delivery) => self.delivery(life, delivery, checked),
                None => break,
            }
        }
        Ok(())
    }

    fn wait(&mut self, life: u64, checked: &Checked) -> Result<(), Error> {
        let timeout = Duration::from_millis(1);
        if let Some(delivery) = self.subscription.next_timeout(timeout)? {
            self.delivery(life, delivery, checked);
            add(&checked.woken, 1);
        }
        Ok(())
    }

    /// Reads the oldest sample: the writer is about to overwrite it, so a torn sample is most likely there.
    fn oldest(&self, life: u64, checked: &Checked) -> Result<(), Error> {
        for _ in 0..50 {
            let mut fresh = self.vertex.subscribe_from_oldest();
            if let Some(Delivery::Sample(sample)) = fresh.try_next()? {
                self.whole(life, &sample);
                add(&checked.oldest, 1);
            }
        }
        Ok(())
    }

    fn range(&mut self, life: u64, checked: &Checked) -> Result<(), Error> {
        if self.vertex.count() == 0 {
            return Ok(());
        }
        let from = base(life) + (self.newest as i64 - 20).max(0);
        let range = self.vertex.range(at(from)..=at(i64::MAX))?;
        let mut before: Option<u64> = None;
        let mut time = at(from);
        for sample in &range.samples {
            assert!(sample.time >= time, "a range goes back in time");
            time = sample.time;
            if let Some(ticket) = self.whole(life, sample) {
                assert_eq!(ticket, before.map_or(ticket, |before| before + 1), "a hole");
                before = Some(ticket);
            }
        }
        self.newest = before.unwrap_or(0).max(self.newest);
        add(&checked.ranges, 1);
        Ok(())
    }

    fn as_of(&mut self, life: u64, checked: &Checked) -> Result<(), Error> {
        if self.recipe == Recipe::Shared || self.vertex.count() == 0 {
            return Ok(());
        }
        let wanted = if self.recipe == Recipe::Quarter { 4 * self.newest + 3 } else { self.newest };
        match self.vertex.as_of(at(base(life) + wanted as i64)) {
            Ok(Some(sample)) => {
                assert_eq!(self.whole(life, &sample), Some(self.newest), "a value of another time");
                add(&checked.as_of, 1);
            }
            Ok(None) => panic!("a sample that was read before is missing"),
            Err(Error::Busy(_) | Error::TooOld { .. }) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Checks the rest of the subscription and the final state of the ring after the death.
    fn post_mortem(&mut self, life: u64, checked: &Checked) -> Result<(), Error> {
        let name = self.vertex.topic().clone();
        self.drain(life, u32::MAX, checked)?;
        let count = self.vertex.count();
        if self.recipe != Recipe::Shared && count > 0 {
            assert_eq!(
                self.next.unwrap_or(count),
                count,
                "{name}: sum of delivered and lost samples"
            );
            assert!(self.newest < count, "{name}: more samples were read than stored");
        }
        match self.vertex.latest() {
            Ok(reading) => {
                let ticket = self.whole(life, &reading.sample).unwrap_or(count - 1);
                assert_eq!(ticket + 1, count, "{name}: the latest is not the last");
            }
            Err(Error::Empty(_)) => assert_eq!(count, 0, "{name}"),
            Err(e) => return Err(e),
        }
        let slots = u64::from(self.vertex.info().slots);
        let (mut delivered, mut lost) = (0, 0);
        let mut again = self.vertex.subscribe_from_oldest();
        while let Some(delivery) = again.try_next()? {
            match delivery {
                Delivery::Sample(sample) => {
                    self.whole(life, &sample);
                    delivered += 1;
                }
                Delivery::Lost(some) => lost += some,
            }
        }
        assert_eq!(delivered + lost, count.min(slots), "{name}: the ring after the death");
        if self.recipe != Recipe::Record {
            assert!(
                lost <= 1,
                "{name}: only the slot that the writer held can be lost, not {lost}"
            );
        }
        let all = self.vertex.range(at(i64::MIN)..=at(i64::MAX))?;
        assert_eq!(all.samples.len() as u64, delivered, "{name}: range and subscription differ");
        add(&checked.remains, 1);
        Ok(())
    }
}

/// A reader of one life.
pub(crate) struct Reader<'a> {
    segment: Segment,
    life: u64,
    followed: Vec<Followed>,
    checked: &'a Checked,
    tick: i64,
}

impl<'a> Reader<'a> {
    /// Waits for all vertices of a segment; `None` if the publisher died before it registered them.
    pub(crate) fn new(
        segment: Segment,
        life: u64,
        dead: &AtomicBool,
        checked: &'a Checked,
    ) -> Option<Self> {
        let mut followed = Vec::new();
        for (name, recipe, ..) in STAYING {
            let vertex = loop {
                match segment.find(&topic(name)) {
                    Ok(vertex) => break vertex,
                    Err(_) if dead.load(Ordering::Acquire) => return None,
                    Err(_) => std::thread::sleep(Duration::from_micros(200)),
                }
            };
            followed.push(Followed::new(vertex, recipe));
        }
        Some(Self { segment, life, followed, checked, tick: 0 })
    }

    /// Reads in every way until the publisher is dead, and then checks the remains.
    pub(crate) fn run(mut self, dead: &AtomicBool, random: &mut SplitMix64) -> Vec<Vertex> {
        while !dead.load(Ordering::Acquire) {
            let which = random.below(self.followed.len());
            let (life, checked) = (self.life, self.checked);
            let followed = &mut self.followed[which];
            let done = match random.below(9) {
                0 => followed.drain(life, 64, checked),
                1 => followed.range(life, checked),
                2 => followed.as_of(life, checked),
                3 => followed.wait(life, checked),
                4 => self.snapshot(false),
                5 => self.churn(),
                6 => followed.oldest(life, checked),
                _ => (0..50).try_for_each(|_| followed.latest(life, checked)),
            };
            self.is_sound(done);
        }
        assert!(!self.segment.is_alive(), "its process has ended");
        let done = self.snapshot(true);
        self.is_sound(done);
        for at in 0..self.followed.len() {
            let done = self.followed[at].post_mortem(self.life, self.checked);
            self.is_sound(done);
        }
        let done = self.churn();
        self.is_sound(done);
        self.followed.into_iter().map(|followed| followed.vertex).collect()
    }

    /// Checks the outcome of a read. A publisher that starts in this directory closes the segments of those that
    /// were killed, so a vertex may be gone, but only after the death of its publisher.
    fn is_sound(&self, done: Result<(), Error>) {
        match done {
            Ok(()) => {}
            Err(Error::Gone(topic)) => {
                assert!(!self.segment.is_alive(), "{topic} is gone, and its publisher lives");
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn snapshot(&mut self, dead: bool) -> Result<(), Error> {
        let members: Vec<Vertex> = self
            .followed
            .iter()
            .filter(|f| f.vertex.topic().as_str().starts_with("crash/tick/"))
            .map(|f| f.vertex.clone())
            .collect();
        let taken = match snapshot(&members) {
            Ok(taken) => taken,
            Err(Error::Empty(_)) if self.tick == 0 => return Ok(()),
            Err(Error::Busy(_)) if !dead => return Ok(()),
            Err(e) => return Err(e),
        };
        let tick = taken.time.as_nanos() - base(self.life);
        assert!(tick >= self.tick, "ticks go back");
        self.tick = tick;
        for (vertex, sample) in members.iter().zip(&taken.samples) {
            let sample = sample.as_ref().expect("every tick sets every member");
            let recipe = STAYING.iter().find(|s| s.0 == vertex.topic().as_str()).expect("listed").1;
            let wanted = if recipe == Recipe::Quarter { tick / 4 } else { tick };
            let found = ticket_of(recipe, self.life, sample);
            assert_eq!(found, Some(wanted as u64), "{}: a value of another tick", vertex.topic());
        }
        add(&self.checked.snapshots, 1);
        Ok(())
    }

    /// Lists the registered vertices and reads the temporary ones.
    fn churn(&self) -> Result<(), Error> {
        for vertex in self.segment.vertices() {
            let Some(which) = vertex.topic().as_str().strip_prefix("crash/churn/") else {
                continue;
            };
            match vertex.latest() {
                Ok(reading) => {
                    let which: u64 = which.parse().expect("a number");
                    let wanted = churn_value(which, reading.sample.time.as_nanos());
                    assert_eq!(
                        reading.sample.value,
                        Value::U64(wanted),
                        "a value of another vertex"
                    );
                    add(&self.checked.churned, 1);
                }
                Err(Error::Empty(_) | Error::Gone(_) | Error::Busy(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
