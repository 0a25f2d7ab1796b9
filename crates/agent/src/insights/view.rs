//! Pages of the graph for `skopos insight` and `skopos graph`.

use skopos_model::{Timestamp, TopicPattern, Value};
use skopos_score::Graph;
use skopos_score::anomaly::Event;
use skopos_score::graph::{InputView, VertexView};

use crate::control::{
    Answer, DefinitionStatus, InputStatus, MAX_ANSWER_BYTES, RefusedInput, VertexStatus,
};
use crate::insights::findings::as_json;
use crate::insights::{Insights, RefusedInsight};

/// Largest number of topics in the list of an insight's inputs, and of a vertex's dependents; the rest is counted.
/// More than a screen of topics explains nothing.
const MAX_LISTED: usize = 64;

/// Largest number of refused insights in a list, because each may have a long topic; the rest is counted.
const MAX_REFUSED: usize = 64;

/// Length at which a page ends: the next vertex, with all its lists, still fits.
const PAGE_BYTES: usize = MAX_ANSWER_BYTES / 4;

impl Insights {
    /// Returns a page of the vertices of `pattern` after the topic `after`, in the order of topics.
    pub(crate) fn page(
        &self,
        pattern: &TopicPattern,
        insights_only: bool,
        after: Option<&str>,
        now: Timestamp,
    ) -> Answer {
        let (mut vertices, mut bytes) = (Vec::new(), 0);
        let wanted = |vertex: &VertexView<'_>| {
            let topic = vertex.topic();
            after.is_none_or(|after| topic.as_str() > after)
                && (!insights_only || vertex.is_insight())
                && pattern.matches(topic)
        };
        for vertex in self.graph.views().filter(wanted) {
            if bytes > PAGE_BYTES {
                return Answer::Vertices { vertices, more: true };
            }
            let status = vertex_status(&self.graph, &vertex, now);
            bytes += serde_json::to_string(&status).map_or(0, |text| text.len());
            vertices.push(status);
        }
        Answer::Vertices { vertices, more: false }
    }

    /// Returns the state of each built-in insight.
    pub(crate) fn definitions(&self) -> Answer {
        let definitions = self.built_in.states().map(|(definition, standing)| {
            let is_of_it = |refused: &&RefusedInsight| std::ptr::eq(refused.definition, definition);
            let without_room = self.refused.iter().filter(is_of_it).count();
            let vertices = standing.vertices.saturating_sub(without_room);
            let why_refused = self.refused.iter().find(is_of_it).filter(|_| vertices == 0);
            DefinitionStatus {
                name: definition.metric.name.to_owned(),
                row: definition.row,
                help: definition.metric.help.to_owned(),
                unit: definition.metric.unit.to_string(),
                formula: definition.formula.to_owned(),
                source: definition.source.to_owned(),
                vertices,
                refused: standing.refused + without_room,
                why_none: why_refused.map(|refused| refused.reason.clone()).or(standing.why_none),
            }
        });
        let unknown = self.built_in.unknown_devices().map(|device| RefusedInput {
            topic: format!("[[device]] name = \"{device}\""),
            reason: "the tiers file declares it, and this machine does not have it".to_owned(),
        });
        let without_room = self.refused.iter().map(|RefusedInsight { topic, reason, .. }| {
            RefusedInput { topic: topic.to_string(), reason: reason.clone() }
        });
        Answer::Definitions {
            definitions: definitions.collect(),
            refused_total: self.refused.len() + self.built_in.unknown_devices().count(),
            refused: without_room.chain(unknown).take(MAX_REFUSED).collect(),
        }
    }

    /// Returns a page of the current findings after the topic and rule `after`, in that order.
    pub(crate) fn raised(&self, after: Option<&(String, String)>) -> Answer {
        let mut raised: Vec<Event> = self.findings.watch().raised().collect();
        let total = raised.len();
        fn key(event: &Event) -> (&str, &str) {
            (event.topic.as_str(), &event.rule)
        }
        let after = after.map(|(topic, rule)| (&**topic, &**rule));
        raised.retain(|event| after.is_none_or(|after| key(event) > after));
        raised.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        let (mut findings, mut bytes) = (Vec::new(), 0);
        for event in &raised {
            if bytes > PAGE_BYTES {
                return Answer::Findings { findings, total, more: true };
            }
            let finding = as_json(event);
            bytes += finding.to_string().len();
            findings.push(finding);
        }
        Answer::Findings { findings, total, more: false }
    }
}

fn vertex_status(graph: &Graph, vertex: &VertexView<'_>, now: Timestamp) -> VertexStatus {
    let topic_of = |id| graph.view(id).map(|v| v.topic().to_string()).ok();
    let (value, unknown) = match vertex.outcome() {
        Some(Ok(value)) => (Value::to_json(value), None),
        Some(Err(why)) => (serde_json::Value::Null, Some(why.reason().to_owned())),
        None => (serde_json::Value::Null, Some("no value yet".to_owned())),
    };
    let dependents = vertex.dependents();
    let mut room = MAX_LISTED;
    let inputs = vertex.inputs().map(|input| input_status(&input, &mut room)).collect();
    let cost = vertex.cost().unwrap_or_default();
    VertexStatus {
        topic: vertex.topic().to_string(),
        unit: vertex.unit().to_string(),
        kind: vertex.kind().name().to_owned(),
        is_insight: vertex.is_insight(),
        name: vertex.name().map(str::to_owned),
        formula: vertex.formula().map(str::to_owned),
        value,
        unknown,
        since_ns: vertex.since().as_nanos(),
        checked_at_ns: vertex.checked_at().as_nanos(),
        oldest: vertex.oldest().and_then(topic_of),
        inputs,
        refused: vertex
            .refused()
            .take(MAX_LISTED)
            .filter_map(|(id, why)| {
                Some(RefusedInput { topic: topic_of(id)?, reason: why.reason().to_owned() })
            })
            .collect(),
        dependents_total: dependents.len(),
        dependents: dependents.into_iter().take(MAX_LISTED).filter_map(topic_of).collect(),
        height: vertex.height(),
        runs: cost.runs,
        last_ns: cost.last_ns,
        total_ns: cost.total_ns,
        changes: vertex.changes(),
        changes_per_second: vertex.changes_per_second(now),
    }
}

fn input_status(input: &InputView<'_>, room: &mut usize) -> InputStatus {
    let matched = input.matched();
    let listed = matched.len().min(*room);
    *room -= listed;
    InputStatus {
        name: input.input().name.clone(),
        pattern: input.input().pattern.clone(),
        needed: input.input().needed,
        missing: input.missing().map(str::to_owned),
        matched_total: matched.len(),
        matched: matched.take(listed).map(|v| v.topic().to_string()).collect(),
    }
}
