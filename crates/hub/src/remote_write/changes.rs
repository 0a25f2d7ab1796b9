//! What has to be sent: values that are new, those that were not sent for some time, and the ends of
//! series.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Topic, TopicPattern};
use skopos_query::{Row, Source, Wanted};

use super::encode::Entry;
use crate::prometheus::{Series, number};

/// A value that does not change is sent again after this time: a store takes a series that has had no
/// sample for five minutes for gone.
const AGAIN_AFTER: Duration = Duration::from_secs(120);

/// The number that ends a series, by Prometheus' convention: a NaN of these very bits.
pub(super) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// Remembers what was sent last.
pub(super) struct Changes {
    topics: Vec<TopicPattern>,
    sent: HashMap<Topic, Sent>,
    round: u64,
}

struct Sent {
    series: Arc<Series>,
    value: f64,
    /// Of the sample that was sent last, in milliseconds since 1970. Times of a series only grow.
    time: i64,
    /// When its source was last looked at, as far as is known.
    checked: i64,
    sent_at: Instant,
    /// The last round in which it was there.
    round: u64,
}

impl Changes {
    pub(super) fn new(topics: Vec<TopicPattern>) -> Self {
        Self { topics, sent: HashMap::new(), round: 0 }
    }

    /// Looks at all there is, and says what to send.
    pub(super) fn look(&mut self, source: &dyn Source, now: Instant) -> Vec<Entry> {
        self.round += 1;
        let mut entries = Vec::new();
        // The last values of a node that is gone stay in the mirror.
        let gone: HashSet<String> =
            source.nodes().into_iter().filter(|n| !n.alive).map(|n| n.name).collect();
        source.latest(&Wanted::All, &mut |row: &Row<'_>| {
            let topic = row.of.topic;
            let is_wanted = self.topics.iter().any(|pattern| pattern.matches(topic));
            if is_wanted
                && !gone.contains(topic.node())
                && let Some(value) = number(row)
            {
                let checked = row.checked_at.as_nanos() / 1_000_000;
                entries.extend(self.judge(topic, value, checked, now));
            }
        });
        let round = self.round;
        self.sent.retain(|_, sent| {
            if sent.round == round {
                return true;
            }
            // After all that was known of it, by the clock of who measured it.
            let time = sent.time.max(sent.checked) + 1;
            entries.push(Entry { series: sent.series.clone(), value: STALE, time });
            false
        });
        entries
    }

    /// What to send of a value that is there.
    fn judge(&mut self, topic: &Topic, value: f64, checked: i64, now: Instant) -> Option<Entry> {
        let round = self.round;
        let Some(sent) = self.sent.get_mut(topic) else {
            let series = Arc::new(Series::of(topic));
            let entry = Entry { series: series.clone(), value, time: checked };
            let sent = Sent { series, value, time: checked, checked, sent_at: now, round };
            self.sent.insert(topic.clone(), sent);
            return Some(entry);
        };
        sent.round = round;
        sent.checked = sent.checked.max(checked);
        let is_new = value.to_bits() != sent.value.to_bits();
        let is_due = now.saturating_duration_since(sent.sent_at) >= AGAIN_AFTER;
        if checked <= sent.time || !(is_new || is_due) {
            return None;
        }
        (sent.value, sent.time, sent.sent_at) = (value, checked, now);
        Some(Entry { series: sent.series.clone(), value, time: checked })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> Changes {
        Changes::new(vec!["**".parse().expect("a pattern")])
    }

    #[test]
    fn what_changed_and_what_would_look_gone_is_sent() {
        let topic: Topic = "n01/mem/free_bytes".parse().expect("a topic");
        let mut changes = changes();
        let begun = Instant::now();
        let mut judge = |value, checked, after: u64| {
            let entry = changes.judge(&topic, value, checked, begun + Duration::from_secs(after));
            entry.map(|entry| (entry.value, entry.time))
        };
        assert_eq!(judge(1.0, 1000, 0), Some((1.0, 1000)), "it is new");
        assert_eq!(judge(1.0, 2000, 1), None, "it is as it was");
        assert_eq!(judge(2.0, 3000, 2), Some((2.0, 3000)), "it changed");
        assert_eq!(judge(3.0, 3000, 3), None, "two values of one moment cannot be told");
        assert_eq!(judge(3.0, 4000, 4), Some((3.0, 4000)), "the next moment can");
        assert_eq!(judge(3.0, 123_000, 123), None, "the store knows it yet");
        assert_eq!(judge(3.0, 124_000, 124), Some((3.0, 124_000)), "it would look gone");
        assert_eq!(judge(3.0, 124_000, 400), None, "nobody looked at it any more");
    }
}
