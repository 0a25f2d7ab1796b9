//! Decides if a mirror holds all samples that a question asks for.

use std::time::Duration;

use skopos_model::{Timestamp, Topic};
use skopos_query::When;
use skopos_wire::{NodeState, Question};

/// Maximum age of a node's last message. A node sends a message every second, so after a longer silence it has
/// samples that did not arrive. The limit is below the pause after which nodes disconnect a hub that hangs.
const LATE: Duration = Duration::from_millis(1400);

/// Returns true if the mirror holds every sample that `question` asks for. A mirror holds the samples of a vertex from
/// the time from which it is complete until the node's last message. `now` is by this machine's clock; samples have
/// the time of the node's clock.
pub(crate) fn has_all(state: &NodeState, question: &Question, when: &When, now: Timestamp) -> bool {
    let ahead = state.clock_offset().unwrap_or_default();
    let now = Timestamp::from_nanos(now.as_nanos().saturating_add(ahead));
    let (from, to) = match when {
        When::During(times) => (*times.start(), (*times.end()).min(now)),
        When::AsOf(time) => (*time, (*time).min(now)),
    };
    let Some(sent_until) = state.mirror.last_sent_at() else { return false };
    let is_late = sent_until.saturating_add(LATE) < to;
    // A node that was gone before the range has no samples in it, as far as the hub knows.
    let was_there = state.is_alive || from <= sent_until.saturating_add(LATE);
    let Question { topics, starts, .. } = question;
    let is_known =
        |topic: &String| Topic::new(topic).is_ok_and(|topic| state.mirror.find(&topic).is_some());
    let mut vertices = state.mirror.vertices().filter(|vertex| {
        let topic = vertex.description.topic.as_str();
        topics.iter().any(|t| t == topic) || starts.iter().any(|s| topic.starts_with(s.as_str()))
    });
    // A topic with this prefix may have existed earlier and be removed since.
    let has_topics = state.mirror.topics_since().is_some_and(|since| since <= from);
    !(is_late && was_there)
        && (starts.is_empty() || has_topics)
        && topics.iter().all(is_known)
        && vertices.all(|vertex| vertex.complete_since().is_some_and(|since| since <= from))
}
