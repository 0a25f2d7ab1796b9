//! What need not be asked for, because a mirror has it.

use std::time::Duration;

use skopos_model::{Timestamp, Topic};
use skopos_query::When;
use skopos_wire::{NodeState, Question};

/// How much older than now the last thing that a node said may be before it has more to say than has come:
/// it says something every second. Less than a hub stood still if its nodes gave it up meanwhile.
const LATE: Duration = Duration::from_millis(1400);

/// Whether a mirror has all of it: the samples of each vertex from the time on from which it is whole, until
/// what its node said last. `now` is the time here; times of samples are by the node's clock.
pub(crate) fn has_all(state: &NodeState, question: &Question, when: &When, now: Timestamp) -> bool {
    let ahead = state.clock_offset().unwrap_or_default();
    let now = Timestamp::from_nanos(now.as_nanos().saturating_add(ahead));
    let (from, to) = match when {
        When::During(times) => (*times.start(), (*times.end()).min(now)),
        When::AsOf(time) => (*time, (*time).min(now)),
    };
    let Some(told_until) = state.mirror.last_sent_at() else { return false };
    let is_late = told_until.saturating_add(LATE) < to;
    // One that was gone before has said nothing since, as far as anybody knows.
    let was_there = state.is_alive || from <= told_until.saturating_add(LATE);
    let Question { topics, starts, .. } = question;
    let is_known =
        |topic: &String| Topic::new(topic).is_ok_and(|topic| state.mirror.find(&topic).is_some());
    let mut vertices = state.mirror.vertices().filter(|vertex| {
        let topic = vertex.description.topic.as_str();
        topics.iter().any(|t| t == topic) || starts.iter().any(|s| topic.starts_with(s.as_str()))
    });
    // Of what begins so there may have been a topic that its node has no more.
    let has_topics = state.mirror.topics_since().is_some_and(|since| since <= from);
    !(is_late && was_there)
        && (starts.is_empty() || has_topics)
        && topics.iter().all(is_known)
        && vertices.all(|vertex| vertex.complete_since().is_some_and(|since| since <= from))
}
