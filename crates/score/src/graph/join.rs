use skopos_model::{Topic, TopicPattern, Unit};

use super::Graph;
use super::input_index::InputRef;
use super::limits::{MAX_INPUTS, MAX_MATCHED};
use super::node::Node;
use super::order::{self, Ranks};
use super::spec::InsightSpec;
use super::table::Edge;
use crate::cell::Cell;
use crate::error::Error;
use crate::error::unit_conflict;
use crate::input::Input;
use crate::insight::Insight;
use crate::matched::Matched;
use crate::unknown::Unknown;

impl Graph {
    /// Adds an insight after all checks.
    pub(super) fn admit(
        &mut self,
        spec: InsightSpec,
        insight: Box<dyn Insight>,
    ) -> Result<u32, Error> {
        if self.table.find(spec.topic.as_str()).is_some() {
            return Err(Error::Exists(spec.topic));
        }
        if !self.table.has_room() {
            return Err(Error::Full);
        }
        let patterns = patterns(&spec)?;
        let matches = self.matches(&spec, &patterns)?;
        let inputs: Vec<u32> = matches.iter().map(|(_, index)| *index).collect();
        // Its own inputs are not registered yet, so it never matches itself.
        let heads = self.input_index.matching(spec.topic.as_str());
        let above: Vec<u32> = heads.iter().map(|(insight, _)| *insight).collect();
        let (rank, ranks) =
            order::newcomer(&self.table, &self.nodes, &spec.topic, &inputs, &above)?;

        let cell = Cell::new(spec.topic.clone(), spec.unit, spec.kind);
        let index = self.table.add(cell, true)?;
        self.make_room(index);
        self.table.vertices[index as usize].rank = rank;
        self.rank(ranks);
        for (slot, pattern) in patterns.iter().enumerate() {
            self.input_index.add(pattern, (index, slot as u16));
        }
        let mut node = Box::new(Node::new(spec, patterns, insight));
        for matched in &mut node.matched {
            let reason = self.missing.reason(&matched.input().pattern);
            matched.set_missing(reason);
        }
        if node.timed {
            self.on_time.push(index);
        }
        self.nodes[index as usize] = Some(node);
        for (slot, input) in matches {
            self.join(input, (index, slot));
        }
        for place in heads {
            self.join(index, place);
        }
        self.wait_for_run(index);
        Ok(index)
    }

    /// Joins a new vertex to all inputs that match it.
    pub(super) fn offer(&mut self, index: u32) {
        for place in self.input_index.matching(self.table.topic(index).as_str()) {
            self.join(index, place);
        }
    }

    /// Removes a vertex.
    pub(super) fn dismiss(&mut self, index: u32) {
        if let Some(node) = self.nodes[index as usize].take() {
            self.input_index.remove(index, node.matched.iter().map(Matched::pattern));
            self.on_time.retain(|&other| other != index);
            let refused = node.refused.iter().map(|(_, input, _)| input);
            for &input in node.matched.iter().flat_map(Matched::indexes).chain(refused) {
                let dependents = &mut self.table.vertices[input as usize].dependents;
                dependents.retain(|edge| edge.insight != index);
            }
        }
        // The edges are removed while the topic still exists, because their places are found by it.
        let edges = self.table.vertices[index as usize].dependents.clone();
        for edge in &edges {
            self.leave(index, *edge);
        }
        self.table.remove(index);
        let heads: Vec<u32> = edges.iter().map(|edge| edge.insight).collect();
        self.rank(order::without(&self.table, &self.nodes, &heads));
    }

    /// Makes room in the list that is parallel to the table.
    pub(super) fn make_room(&mut self, index: u32) {
        if self.nodes.len() <= index as usize {
            self.nodes.resize_with(index as usize + 1, || None);
        }
    }

    fn rank(&mut self, ranks: Ranks) {
        for (index, rank) in ranks.0 {
            self.table.vertices[index as usize].rank = rank;
        }
    }

    /// Returns the vertices that match the inputs of `spec`.
    fn matches(
        &self,
        spec: &InsightSpec,
        patterns: &[TopicPattern],
    ) -> Result<Vec<(u16, u32)>, Error> {
        let mut matches = Vec::new();
        for (slot, (input, pattern)) in spec.inputs.iter().zip(patterns).enumerate() {
            let before = matches.len();
            let found = self.table.select(pattern).map(|index| (slot as u16, index));
            matches.extend(found.take(MAX_MATCHED + 1));
            if matches.len() - before > MAX_MATCHED {
                let (insight, pattern) = (spec.topic.clone(), input.pattern.clone());
                return Err(Error::Matched { insight, pattern });
            }
            let found = matches[before..].iter().map(|(_, index)| *index);
            self.check_units(spec, input, found)?;
        }
        Ok(matches)
    }

    fn check_units(
        &self,
        spec: &InsightSpec,
        input: &Input,
        found: impl Iterator<Item = u32> + Clone,
    ) -> Result<(), Error> {
        let Some(wanted) = input.unit else { return Ok(()) };
        let cells = found.map(|index| &self.table.cells[index as usize]);
        match cells.clone().find(|cell| cell.unit() != wanted) {
            None => Ok(()),
            Some(wrong) => Err(Error::Unit {
                insight: spec.topic.clone(),
                input: input.name.clone(),
                wanted,
                other: cells.clone().find(|cell| cell.unit() == wanted).map(|c| c.topic().clone()),
                topic: wrong.topic().clone(),
                unit: wrong.unit(),
            }),
        }
    }

    /// Makes the vertex at `index` an input of an insight, or a refused input if its unit differs.
    fn join(&mut self, index: u32, (insight, slot): InputRef) {
        let Some(node) = &mut self.nodes[insight as usize] else { return };
        let vertex = &self.table.vertices[index as usize];
        let cell = &self.table.cells[index as usize];
        let matched = &mut node.matched[usize::from(slot)];
        let refusal = refusal(&self.table.cells, matched, cell.topic(), cell.unit());
        let refused = refusal.is_some();
        if let Some(why) = refusal {
            node.refused.push((slot, index, why));
        } else {
            matched.insert(&self.table.cells, index);
            let id = self.table.id(index).as_u32();
            node.insight.joined(slot.into(), id, cell);
            // The next run reports a pending change; do not report it twice.
            if cell.outcome().is_some() && !(vertex.pending && vertex.matters) {
                node.insight.changed(slot.into(), id, cell);
            }
        }
        node.dirty = true;
        node.reorder = true;
        let edge = Edge { insight, slot, refused };
        self.table.vertices[index as usize].dependents.push(edge);
        self.wait_for_run(insight);
    }

    /// Takes the vertex at `index`, which is still in the table, away from an input of an insight.
    fn leave(&mut self, index: u32, edge: Edge) {
        let Edge { insight, slot, refused } = edge;
        let Some(node) = &mut self.nodes[insight as usize] else { return };
        let mut next = None;
        if refused {
            node.refused.retain(|(at, input, _)| (*at, *input) != (slot, index));
        } else {
            let matched = &mut node.matched[usize::from(slot)];
            matched.remove(&self.table.cells, index);
            node.insight.left(slot.into(), self.table.id(index).as_u32());
            // An input at its limit now has room for a refused vertex.
            let wanted = matched.input().unit;
            let cells = &self.table.cells;
            let fits = |input: &u32| wanted.is_none_or(|u| cells[*input as usize].unit() == u);
            let place = node.refused.iter().position(|(at, input, _)| *at == slot && fits(input));
            next = place.map(|place| node.refused.swap_remove(place).1);
        }
        node.dirty = true;
        node.reorder = true;
        self.wait_for_run(insight);
        if let Some(next) = next {
            let dependents = &mut self.table.vertices[next as usize].dependents;
            dependents.retain(|edge| (edge.insight, edge.slot) != (insight, slot));
            self.join(next, (insight, slot));
        }
    }
}

fn patterns(spec: &InsightSpec) -> Result<Vec<TopicPattern>, Error> {
    if spec.inputs.len() > MAX_INPUTS {
        return Err(Error::Inputs { insight: spec.topic.clone(), inputs: spec.inputs.len() });
    }
    let pattern = |input: &Input| {
        TopicPattern::new(&input.pattern).map_err(|source| Error::Pattern {
            insight: spec.topic.clone(),
            input: input.name.clone(),
            source,
        })
    };
    spec.inputs.iter().map(pattern).collect()
}

/// Returns the reason why a topic that matches the input is refused.
fn refusal(cells: &[Cell], matched: &Matched, topic: &Topic, unit: Unit) -> Option<Unknown> {
    let input = matched.input();
    if let Some(wanted) = input.unit
        && wanted != unit
    {
        let other = matched.indexes().first().map(|&index| cells[index as usize].topic());
        return Some(Unknown::new(unit_conflict(topic, unit, &input.name, wanted, other)));
    }
    if matched.indexes().len() >= MAX_MATCHED {
        let pattern = &input.pattern;
        return Some(Unknown::new(format!("more than {MAX_MATCHED} topics match `{pattern}`")));
    }
    None
}
