//! The window of samples of one topic, and the aggregates over it.

use std::sync::Arc;

use skopos_model::{Kind, Timestamp, Topic, Unit};

use crate::aggregate::{Aggregate, Aggregated, Contribution, Exact, contribution};
use crate::expression::{Fault, Leaf, Leaves};
use crate::limits::MAX_WINDOW_SAMPLES;
use crate::program::{Function, Program, Window};
use crate::unknown::Unknown;

/// Initial capacity of a window, in samples.
const FIRST_SAMPLES: usize = 64;

/// The window and its aggregates.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    program: Arc<Program>,
    window: Window,
    source: Option<Source>,
    /// A ring; its length is a power of two.
    ring: Vec<Sample>,
    /// The place of the oldest sample.
    oldest: usize,
    len: usize,
    aggregates: Vec<Aggregate>,
    increase: Increase,
    /// Number of samples that were dropped although they were in the window, and the time of the last one.
    dropped: u64,
    dropped_at: Option<Timestamp>,
    resets: u64,
}

/// The topic of the window.
#[derive(Clone, Debug)]
struct Source {
    key: u32,
    topic: Topic,
    unit: Unit,
    is_counter: bool,
    texts: u64,
}

/// A sample; NaN without a value.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    time: Timestamp,
    value: f64,
}

/// The sum of the changes between consecutive samples of the window, and of their durations.
#[derive(Clone, Debug)]
struct Increase {
    sum: Exact,
    nanos: i128,
}

impl Samples {
    pub(crate) fn new(program: Arc<Program>, window: Window) -> Self {
        let aggregates = program.aggregates.iter().map(|a| Aggregate::new(a.function)).collect();
        let mut samples = Self {
            program,
            window,
            source: None,
            ring: vec![Sample::default(); FIRST_SAMPLES],
            oldest: 0,
            len: 0,
            aggregates,
            increase: Increase { sum: Exact::new(), nanos: 0 },
            dropped: 0,
            dropped_at: None,
            resets: 0,
        };
        samples.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(FIRST_SAMPLES));
        samples
    }

    /// Sets the topic. Returns false if the window has another topic already.
    pub(crate) fn add(&mut self, key: u32, topic: &Topic, unit: Unit, kind: Kind) -> bool {
        if let Some(source) = &self.source {
            return source.key == key;
        }
        let texts = self.program.texts_of(topic, unit, kind);
        let is_counter = kind == Kind::Counter;
        self.source = Some(Source { key, topic: topic.clone(), unit, is_counter, texts });
        true
    }

    /// Removes the topic and its samples.
    pub(crate) fn remove(&mut self, key: u32) {
        if self.source.as_ref().is_some_and(|source| source.key == key) {
            while self.len > 0 {
                self.drop_oldest();
            }
            (self.source, self.dropped_at) = (None, None);
        }
    }

    /// Adds a sample, if it is selected.
    pub(crate) fn change(&mut self, key: u32, time: Timestamp, value: Option<f64>) {
        let Some(source) = self.source.as_ref().filter(|source| source.key == key) else { return };
        let value = value.unwrap_or(f64::NAN);
        let selected = self.program.selection.truth(&SampleLeaves { value, texts: source.texts });
        if selected != Some(true) {
            return;
        }
        let last = self.len.checked_sub(1).map(|at| self.sample(at));
        // Times of one vertex never go back.
        let time = last.map_or(time, |last| time.max(last.time));
        if last.is_some_and(|last| last.time == time && last.value.to_bits() == value.to_bits()) {
            return;
        }
        self.drop_until(time);
        if self.len == self.ring.len() {
            if self.len < MAX_WINDOW_SAMPLES {
                self.grow();
            } else {
                (self.dropped, self.dropped_at) = (self.dropped + 1, Some(self.sample(0).time));
                self.drop_oldest();
            }
        }
        self.push(Sample { time, value });
    }

    fn sample(&self, at: usize) -> Sample {
        self.ring[(self.oldest + at) & (self.ring.len() - 1)]
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = Sample> {
        (0..self.len).map(|at| self.sample(at))
    }

    fn push(&mut self, sample: Sample) {
        let Some(source) = &self.source else { return };
        let slot = (self.oldest + self.len) & (self.ring.len() - 1);
        let leaves = SampleLeaves { value: sample.value, texts: source.texts };
        for (aggregate, state) in self.program.aggregates.iter().zip(&mut self.aggregates) {
            state.set(slot, contribution(true, aggregate, &leaves));
        }
        if let Some(before) = self.len.checked_sub(1).map(|at| self.sample(at)) {
            self.resets += u64::from(self.is_reset(before, sample));
            if let Some((change, nanos)) = self.step(before, sample) {
                self.increase.sum.add(change);
                self.increase.nanos += nanos;
            }
        }
        self.ring[slot] = sample;
        self.len += 1;
    }

    fn drop_oldest(&mut self) {
        let slot = self.oldest;
        for state in &mut self.aggregates {
            state.set(slot, Contribution::Nothing);
        }
        if self.len > 1
            && let Some((change, nanos)) = self.step(self.sample(0), self.sample(1))
        {
            self.increase.sum.take(change);
            self.increase.nanos -= nanos;
        }
        self.oldest = (slot + 1) & (self.ring.len() - 1);
        self.len -= 1;
    }

    fn is_reset(&self, before: Sample, after: Sample) -> bool {
        let is_counter = self.source.as_ref().is_some_and(|source| source.is_counter);
        is_counter && after.value < before.value
    }

    /// Returns the change of the value and its duration in nanoseconds; `None` at a restart or without a
    /// value.
    fn step(&self, before: Sample, after: Sample) -> Option<(f64, i128)> {
        let change = after.value - before.value;
        let nanos = i128::from(after.time.as_nanos()) - i128::from(before.time.as_nanos());
        (change.is_finite() && !self.is_reset(before, after)).then_some((change, nanos))
    }

    /// Doubles the capacity, and puts the samples in order from the first slot on.
    fn grow(&mut self) {
        let samples: Vec<Sample> = self.iter().collect();
        while self.len > 0 {
            self.drop_oldest();
        }
        let room = 2 * self.ring.len();
        self.ring.resize(room, Sample::default());
        self.oldest = 0;
        self.aggregates.iter_mut().for_each(|aggregate| aggregate.grow(room));
        let resets = self.resets;
        samples.into_iter().for_each(|sample| self.push(sample));
        self.resets = resets;
    }

    fn drop_until(&mut self, now: Timestamp) {
        let begin = now.saturating_sub(self.window.length);
        while self.len > 0 && !self.is_within(self.sample(0).time, begin) {
            self.drop_oldest();
        }
        if self.dropped_at.is_some_and(|time| !self.is_within(time, begin)) {
            self.dropped_at = None;
        }
    }

    #[inline]
    fn is_within(&self, time: Timestamp, begin: Timestamp) -> bool {
        if self.window.closed { time >= begin } else { time > begin }
    }

    /// Moves the window to end at `now`.
    pub(crate) fn at(&mut self, now: Timestamp) -> Result<(), Unknown> {
        self.drop_until(now);
        match self.dropped_at {
            Some(_) => Err(Unknown::WindowOverrun { dropped: self.dropped }),
            None => Ok(()),
        }
    }

    /// Returns the reason why an aggregate has no value.
    pub(crate) fn why(&self, at: usize) -> Unknown {
        let Some(topic) = self.source.as_ref().map(|source| source.topic.to_string()) else {
            return Unknown::NoTopic;
        };
        let fault = self.aggregates[at].fault().map(|(_, fault)| fault);
        match (fault, self.aggregate(at)) {
            (Some(Fault::DivideByZero), _) => Unknown::DivideByZero { topic: Some(topic) },
            (Some(_), _) => Unknown::TooLarge { topic: Some(topic) },
            (None, Err(Fault::TooLarge)) => Unknown::TooLarge { topic: None },
            _ if self.len == 0 => Unknown::EmptyWindow { topic },
            _ if self.program.aggregates[at].function == Function::Rate => {
                Unknown::ShortWindow { topic }
            }
            _ => Unknown::NoRow { topics: 1, example: topic },
        }
    }

    /// Returns the unit of an aggregate.
    pub(crate) fn unit(&self, at: usize) -> Result<Option<Unit>, Unknown> {
        self.program.unit_of_aggregate(at, self.source.as_ref().map(|source| source.unit))
    }

    pub(crate) fn resets(&self) -> u64 {
        self.resets
    }

    fn rate(&self) -> Result<f64, Fault> {
        if self.increase.nanos <= 0 {
            return Err(Fault::Null);
        }
        Ok(self.increase.sum.value() / (self.increase.nanos as f64 / 1e9))
    }

    /// Returns the mean of the samples, in which a sample weighs half of one that is a half-life newer.
    fn mean(&self, half_life: f64) -> Result<f64, Fault> {
        let newest =
            self.len.checked_sub(1).map_or(Timestamp::default(), |at| self.sample(at).time);
        let (mut sum, mut weights) = (0.0, 0.0);
        for sample in self.iter().filter(|sample| !sample.value.is_nan()) {
            let weight = (-(newest.since(sample.time).as_secs_f64() / half_life)).exp2();
            sum += weight * sample.value;
            weights += weight;
        }
        if weights > 0.0 { Ok(sum / weights) } else { Err(Fault::Null) }
    }
}

impl Aggregated for Samples {
    #[inline]
    fn aggregate(&self, at: usize) -> Result<f64, Fault> {
        let number = match self.program.aggregates[at].function {
            Function::First => self.iter().next().map(|sample| sample.value),
            Function::Last => self.iter().next_back().map(|sample| sample.value),
            Function::Rate => Some(self.rate()?),
            Function::Ema(half_life) => Some(self.mean(half_life)?),
            _ => return self.aggregates[at].value(),
        };
        match number {
            Some(number) if number.is_finite() => Ok(number),
            Some(number) if number.is_infinite() => Err(Fault::TooLarge),
            _ => Err(Fault::Null),
        }
    }
}

/// The leaves of an expression about one sample.
struct SampleLeaves {
    value: f64,
    texts: u64,
}

impl Leaves for SampleLeaves {
    #[inline]
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault> {
        match leaf {
            Leaf::Value if self.value.is_finite() => Ok(self.value),
            _ => Err(Fault::Null),
        }
    }

    #[inline]
    fn text(&self, test: usize) -> Option<bool> {
        Some(self.texts >> test & 1 == 1)
    }
}
