//! Selects the samples to send: changed values, values that were not sent for some time, and the ends of series.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use skopos_model::{Topic, TopicPattern};
use skopos_query::{Row, Source, Wanted};

use super::encode::Entry;
use crate::prometheus::{Series, numbers};

/// Time after which an unchanged value is sent again. A store treats a series without samples for five minutes as
/// gone.
const AGAIN_AFTER: Duration = Duration::from_secs(120);

/// The number that ends a series by Prometheus' convention: a NaN with exactly these bits.
pub(super) const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

/// The last sample sent of each topic.
pub(super) struct Changes {
    topics: Vec<TopicPattern>,
    sent: HashMap<Topic, LastSent>,
    round: u64,
}

/// The last sample sent of one topic.
struct LastSent {
    series: Arc<Series>,
    value: f64,
    /// Time of the sample, in milliseconds since 1970. Times of a series only grow.
    time: i64,
    /// Time of the last known poll of its source, in milliseconds since 1970.
    checked: i64,
    sent_at: Instant,
    /// The last round in which the topic existed.
    round: u64,
}

impl Changes {
    pub(super) fn new(topics: Vec<TopicPattern>) -> Self {
        Self { topics, sent: HashMap::new(), round: 0 }
    }

    /// Reads all latest values and returns the samples to send.
    pub(super) fn collect(&mut self, source: &dyn Source, now: Instant) -> Vec<Entry> {
        self.round += 1;
        let mut entries = Vec::new();
        // The mirror keeps the last values of nodes that are gone.
        let gone: HashSet<String> =
            source.nodes().into_iter().filter(|n| !n.alive).map(|n| n.name).collect();
        source.latest(&Wanted::All, &mut |row: &Row<'_>| {
            if gone.contains(row.of.topic.node()) {
                return;
            }
            numbers(row, &mut |topic, value| {
                let is_wanted = |pattern: &TopicPattern| {
                    pattern.matches(topic) || pattern.matches(row.of.topic)
                };
                if self.topics.iter().any(is_wanted) {
                    let checked = row.checked_at.as_nanos() / 1_000_000;
                    entries.extend(self.judge(topic, value, checked, now));
                }
            });
        });
        let round = self.round;
        self.sent.retain(|_, sent| {
            if sent.round == round {
                return true;
            }
            // Later than all its samples, by the clock of its node.
            let time = sent.time.max(sent.checked) + 1;
            entries.push(Entry { series: sent.series.clone(), value: STALE, time });
            false
        });
        entries
    }

    /// Returns the sample to send for an existing value, if any.
    fn judge(&mut self, topic: &Topic, value: f64, checked: i64, now: Instant) -> Option<Entry> {
        let round = self.round;
        let Some(sent) = self.sent.get_mut(topic) else {
            let series = Arc::new(Series::of(topic));
            let entry = Entry { series: series.clone(), value, time: checked };
            let sent = LastSent { series, value, time: checked, checked, sent_at: now, round };
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
    fn changed_values_and_values_that_would_go_stale_are_sent() {
        let topic: Topic = "n01/mem/free_bytes".parse().expect("a topic");
        let mut changes = changes();
        let begun = Instant::now();
        let mut judge = |value, checked, after: u64| {
            let entry = changes.judge(&topic, value, checked, begun + Duration::from_secs(after));
            entry.map(|entry| (entry.value, entry.time))
        };
        assert_eq!(judge(1.0, 1000, 0), Some((1.0, 1000)), "it is new");
        assert_eq!(judge(1.0, 2000, 1), None, "it has not changed");
        assert_eq!(judge(2.0, 3000, 2), Some((2.0, 3000)), "it changed");
        assert_eq!(judge(3.0, 3000, 3), None, "two values of one moment cannot be sent");
        assert_eq!(judge(3.0, 4000, 4), Some((3.0, 4000)), "the value of the next moment can");
        assert_eq!(judge(3.0, 123_000, 123), None, "it is not stale yet");
        assert_eq!(judge(3.0, 124_000, 124), Some((3.0, 124_000)), "it would go stale");
        assert_eq!(judge(3.0, 124_000, 400), None, "its source was not polled again");
    }
}
