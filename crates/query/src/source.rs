//! What there is to ask: the engine knows neither shared memory nor the network, only this.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Kind, Sample, Timestamp, Topic, Unit, ValueType};
use skopos_store::archive::{self, Archive};
use skopos_store::history::{self, Part};

/// Where values come from: segments of this machine, a mirror of many, history on disk.
///
/// All methods are called from several threads at once, and must not wait for long.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// What time it is.
    fn now(&self) -> Timestamp;

    /// Shows the latest value of each wanted topic that has one; each topic once, in any order.
    fn latest(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Row<'_>));

    /// Shows the samples of each wanted topic with a time in `times`, oldest first of each topic.
    fn samples(
        &self,
        wanted: &Wanted,
        times: RangeInclusive<Timestamp>,
        visit: &mut dyn FnMut(&Row<'_>),
    );

    /// What is kept on disk of these times. Asked for after [`samples`](Self::samples), so that nothing
    /// is in neither; what is in both is shown once.
    ///
    /// # Errors
    /// It cannot be read.
    fn history(
        &self,
        _times: &RangeInclusive<Timestamp>,
    ) -> Result<Vec<Arc<Part>>, history::Error> {
        Ok(Vec::new())
    }

    /// Whether there is any history on disk.
    fn has_history(&self) -> bool {
        false
    }

    /// Asks other nodes for what only they have of the wanted topics; `None` if nobody has more than
    /// [`samples`](Self::samples) shows.
    fn elsewhere(&self, _wanted: &Wanted, _when: &When, _until: Instant) -> Option<Asked> {
        None
    }

    /// The archive of tasks that ran, opened to be read; `None` if nobody has made it.
    ///
    /// # Errors
    /// It cannot be read.
    fn archive(&self) -> Result<Option<Archive>, archive::Error> {
        Ok(None)
    }

    /// Shows every topic, also those without a value yet.
    fn topics(&self, wanted: &Wanted, visit: &mut dyn FnMut(&Described<'_>));

    /// How the insight at `topic` comes about, as far as is known here.
    fn about(&self, _topic: &Topic) -> About {
        About::default()
    }

    /// The nodes that are known.
    fn nodes(&self) -> Vec<Node>;

    /// How many samples of a topic there ever were, for whoever wants to know how many were missed;
    /// `None` where nobody counts them.
    fn count(&self, _topic: &Topic) -> Option<u64> {
        None
    }
}

/// The answer of other nodes, when it has come.
pub type Asked = Pin<Box<dyn Future<Output = Elsewhere> + Send>>;

/// Of when samples are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// With these times.
    During(RangeInclusive<Timestamp>),
    /// The last one of each topic that is not after this time.
    AsOf(Timestamp),
}

/// What other nodes have.
#[derive(Debug, Default)]
pub struct Elsewhere {
    /// Their samples.
    pub parts: Vec<Arc<Part>>,
    /// Nodes that answered with all that they have, also of what is in memory here.
    pub answered: BTreeSet<String>,
    /// Nodes that did not.
    pub missing: Vec<String>,
}

/// What is known of one topic that is no sample.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// Its name.
    pub topic: &'a Topic,
    /// The unit of its values.
    pub unit: Unit,
    /// How its values move.
    pub kind: Kind,
    /// Their type.
    pub value_type: ValueType,
    /// The segment that has it.
    pub publisher: &'a str,
}

/// One sample of one topic.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Of what.
    pub of: Described<'a>,
    /// The sample.
    pub sample: &'a Sample,
    /// When its source was last looked at; the sample's own time if that is not known.
    pub checked_at: Timestamp,
    /// Nanoseconds that the clock of these times is ahead of the one of [`Source::now`], as far as is known.
    pub ahead: i64,
}

impl Row<'_> {
    /// How long ago its source was looked at.
    pub fn age(&self, now: Timestamp) -> Duration {
        now.since(self.here(self.checked_at))
    }

    /// A time of this row, by the clock of [`Source::now`].
    pub(crate) fn here(&self, time: Timestamp) -> Timestamp {
        Timestamp::from_nanos(time.as_nanos().saturating_sub(self.ahead))
    }
}

/// How an insight comes about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// What computes it.
    pub formula: Option<String>,
    /// Why it has no value now.
    pub reason: Option<String>,
}

/// A node, as far as its publishers tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name: the first segment of its topics.
    pub name: String,
    /// True if what publishes its facts is alive.
    pub alive: bool,
    /// How many topics it has.
    pub topics: u64,
    /// When it was last heard of, or anything of it looked at, by the clock of [`Source::now`].
    pub seen_at: Timestamp,
    /// Batches of it that never arrived.
    pub lost_batches: u64,
    /// Messages of it that were no batch.
    pub malformed_batches: u64,
    /// Nanoseconds that its clock is ahead of this machine's, where that is known.
    pub clock_offset: Option<i64>,
}

/// Which topics a scan is after. A source may show more, never fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every one.
    All,
    /// These.
    These(Vec<Topic>),
    /// Those that begin with one of these texts.
    Starting(Vec<String>),
}

impl Wanted {
    /// Whether `topic` is wanted.
    pub fn selects(&self, topic: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(topics) => topics.iter().any(|t| t.as_str() == topic),
            Self::Starting(starts) => starts.iter().any(|start| topic.starts_with(start)),
        }
    }

    /// What both want, or one of the two if that cannot be said in these words: the narrower.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, other) | (other, Self::All) => other,
            (Self::These(mut topics), other) | (other, Self::These(mut topics)) => {
                topics.retain(|topic| other.selects(topic.as_str()));
                Self::These(topics)
            }
            (Self::Starting(a), Self::Starting(b)) => {
                let longest = |starts: &[String]| starts.iter().map(String::len).min();
                if longest(&a) >= longest(&b) { Self::Starting(a) } else { Self::Starting(b) }
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
    fn both_wishes_are_the_narrower_one() {
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
