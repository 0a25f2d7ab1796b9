//! The source of an engine: the only way in which it reads measurements. The engine knows neither shared
//! memory nor the network.
//!
//! The history on disk and the mirrors of other nodes reach the engine through this trait as well, as parts
//! of history: the format in which `skopos-store` keeps sealed samples.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, ValueType};
use skopos_store::history::{self, Found, Part};

/// A source of measurements: segments of this machine, mirrors of other nodes, history on disk.
///
/// Several threads call the methods at the same time. No method may wait for long.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Shows the latest sample of each wanted topic that has one: each topic once, in any order.
    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>));

    /// Returns a reader of the latest samples of all topics that knows what it has read; `None` if only
    /// [`latest`](Self::latest) reads them.
    fn latest_reader(self: Arc<Self>) -> Option<Box<dyn LatestReader>> {
        None
    }

    /// Shows the samples of each wanted topic with a time in `times`: topic by topic, the oldest sample of a
    /// topic first.
    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    );

    /// Returns the history on disk of these times. The engine calls this after
    /// [`samples`](Self::samples), so that no sample is missed on its way from memory to disk. The engine
    /// shows a sample that is in both once. Answers name damaged files as missing.
    ///
    /// # Errors
    /// The history cannot be read.
    fn history(&self, _times: &RangeInclusive<Timestamp>) -> Result<Found, history::Error> {
        Ok(Found::default())
    }

    /// Returns true if there is history on disk.
    fn has_history(&self) -> bool {
        false
    }

    /// Asks other nodes for wanted samples that only they have; `None` if [`samples`](Self::samples) shows
    /// every sample that they have.
    fn remote_samples(
        &self,
        _wanted: &Wanted,
        _when: &When,
        _until: Instant,
    ) -> Option<RemoteAnswer> {
        None
    }

    /// Shows every topic, also one that has no sample yet.
    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>));

    /// Returns the known nodes.
    fn nodes(&self) -> Vec<Node>;

    /// Returns the number of samples that a topic ever had, from which a subscriber computes how many it
    /// missed; `None` if it is not counted.
    fn count(&self, _topic: &Topic) -> Option<u64> {
        None
    }
}

/// Reads the latest samples of all topics again and again.
pub trait LatestReader: fmt::Debug + Send {
    /// Shows the latest sample of each topic that has one.
    fn all(&mut self, visit: &mut dyn FnMut(&Row<'_>));

    /// Shows the latest samples of topics that have new ones since the last call, with the places of these topics in the
    /// last [`all`](Self::all). Returns false if other topics have samples than then: what was shown is void, and `all` is
    /// due. A change of [`checked_at`](Row::checked_at) alone is not shown.
    fn changed(&mut self, visit: &mut dyn FnMut(usize, &Row<'_>)) -> bool;
}

/// The samples of other nodes, once their answers have arrived.
pub type RemoteAnswer = Pin<Box<dyn Future<Output = RemoteSamples> + Send>>;

/// The times of wanted samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// All samples with a time in this range.
    During(RangeInclusive<Timestamp>),
    /// The last sample of each topic that is not later than this time.
    AsOf(Timestamp),
}

/// Samples of other nodes.
#[derive(Debug, Default)]
pub struct RemoteSamples {
    /// The samples.
    pub parts: Vec<Arc<Part>>,
    /// Nodes that sent all wanted samples that they have, also those that are in memory here.
    pub answered: BTreeSet<String>,
    /// Nodes that did not.
    pub missing: Vec<String>,
}

/// The description of a topic.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// The kind of its values: counter, gauge or state.
    pub kind: Kind,
    /// The type of its values.
    pub value_type: ValueType,
    /// The segment that publishes it.
    pub publisher: &'a str,
}

/// A sample of a topic.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The topic.
    pub of: Described<'a>,
    /// The sample.
    pub sample: &'a Sample,
    /// The time at which the sensor last read its source; the time of the sample if that is not known.
    pub checked_at: Timestamp,
    /// Nanoseconds by which the clock of these times is ahead of [`Source::now`]; zero if that is not known.
    pub ahead: i64,
    /// Time since the sensor last read its source, by a clock that never steps; `None` if only the times are known.
    pub age: Option<Duration>,
}

impl Row<'_> {
    /// Returns the time since the sensor last read its source.
    pub fn age(&self, now: Timestamp) -> Duration {
        self.age.unwrap_or_else(|| now.since(self.here(self.checked_at)))
    }

    /// Returns the time at which the sensor last read its source, by the clock of [`Source::now`].
    pub(crate) fn polled_at(&self, now: Timestamp) -> Timestamp {
        match self.age {
            Some(age) => now.saturating_sub(age),
            None => self.here(self.checked_at),
        }
    }

    /// Converts a time of this row to the clock of [`Source::now`].
    pub(crate) fn here(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanos(time.as_nanos().saturating_sub(self.ahead))
    }
}

/// A node, as its publishers describe it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name: the first segment of its topics.
    pub name: String,
    /// True if the publisher of its facts is alive.
    pub alive: bool,
    /// Number of its topics.
    pub topics: u64,
    /// Time of its last message, or of the last read of any of its sources, by the clock of
    /// [`Source::now`].
    pub seen_at: Timestamp,
    /// Number of its batches that never arrived.
    pub lost_batches: u64,
    /// Number of its messages that were not a batch.
    pub malformed_batches: u64,
    /// Nanoseconds by which its clock is ahead of the clock here, if that is known.
    pub clock_offset: Option<i64>,
}

/// The topics that a scan reads. A source may show more topics, never fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every topic.
    All,
    /// These topics.
    These(Vec<Topic>),
    /// Topics that begin with any of these texts.
    Starting(Vec<String>),
}

impl Wanted {
    /// Returns true if `topic` is wanted.
    pub fn selects(&self, topic: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(topics) => topics.iter().any(|t| t.as_str() == topic),
            Self::Starting(starts) => starts.iter().any(|start| topic.starts_with(start)),
        }
    }

    /// Returns the topics that both want; the narrower of the two if this type cannot express them.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, other) | (other, Self::All) => other,
            (Self::These(mut topics), other) | (other, Self::These(mut topics)) => {
                topics.retain(|topic| other.selects(topic.as_str()));
                Self::These(topics)
            }
            (Self::Starting(a), Self::Starting(b)) => {
                let shortest = |starts: &[String]| starts.iter().map(String::len).min();
                if shortest(&a) >= shortest(&b) { Self::Starting(a) } else { Self::Starting(b) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn these(topics: &[&str]) -> Wanted {
        Wanted::These(topics.iter().map(|t| Topic::new(t).expect("a topic")).collect())
    }

    #[test]
    fn two_filters_combine_to_the_narrower_one() {
        let starting = |s: &str| Wanted::Starting(vec![s.to_owned()]);
        for (a, b, both) in [
            (Wanted::All, starting("n1/"), starting("n1/")),
            (these(&["n1/a", "n2/a"]), starting("n1/"), these(&["n1/a"])),
            (starting("n1/mem/"), starting("n1/"), starting("n1/mem/")),
            (these(&["n1/a", "n1/b"]), these(&["n1/b", "n1/c"]), these(&["n1/b"])),
        ] {
            assert_eq!(a.clone().and(b.clone()), both);
            assert_eq!(b.and(a), both);
        }
    }
}
