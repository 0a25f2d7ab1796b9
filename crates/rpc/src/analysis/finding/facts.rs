//! Facts about nodes, from outside of a trace.

use serde::{Deserialize, Serialize};

/// A value of a node during the run, such as the rate of its processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeFact {
    /// The name of the node, as processes recorded it.
    pub node: String,
    /// The topic below the node, such as `cpu/total/busy_ratio`.
    pub name: String,
    /// The mean over the run.
    pub value: f64,
}

/// Facts of the nodes of a run. A caller takes them from history or from a hub; without them, rules say less.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// The facts.
    pub facts: Vec<NodeFact>,
}

/// The ratio between a node and the others from which a fact is named as different.
const MIN_RATIO: f64 = 1.2;

/// The most facts that a finding names.
const MAX_NAMED: usize = 4;

impl NodeFacts {
    /// The facts in which a node differs most from the median of the others: name, its value, their median.
    pub fn differing(&self, node: &str) -> Vec<(&str, f64, f64)> {
        let mut found: Vec<(f64, (&str, f64, f64))> = Vec::new();
        for fact in self.facts.iter().filter(|fact| fact.node == node && fact.value.is_finite()) {
            let mut others: Vec<f64> = self
                .facts
                .iter()
                .filter(|other| other.name == fact.name && other.node != node)
                .map(|other| other.value)
                .filter(|value| value.is_finite())
                .collect();
            others.sort_by(f64::total_cmp);
            let Some(median) = others.get(others.len() / 2).copied() else { continue };
            let (small, great) = (fact.value.min(median).abs(), fact.value.max(median).abs());
            let ratio =
                if small > 0.0 { great / small } else { great.max(1.0) * f64::from(great > 0.0) };
            if ratio >= MIN_RATIO {
                found.push((ratio, (&fact.name, fact.value, median)));
            }
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found.into_iter().take(MAX_NAMED).map(|(_, fact)| fact).collect()
    }
}
