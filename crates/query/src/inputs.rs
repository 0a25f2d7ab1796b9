//! What an answer depends on: for questions that stand, and are asked again when something changed.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};

use crate::source::{Node, Row, Source, Wanted};
use crate::tables::{Tables, pushdown};

/// Columns whose values change as the clock goes, and not only when a sample comes.
const OF_THE_CLOCK: [&str; 3] = ["age", "checked_at", "seen_at"];

/// What an answer depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// The topics, by what is scanned.
    wanted: Vec<Wanted>,
    /// Whether it says which nodes are there.
    has_nodes: bool,
    /// Whether it says which topics there are.
    has_topics: bool,
    /// Whether it changes as the clock goes.
    is_timed: bool,
}

impl Inputs {
    /// Of samples of these topics.
    pub(crate) fn of(wanted: Vec<Wanted>, is_timed: bool) -> Self {
        Self { wanted, is_timed, ..Self::default() }
    }

    /// Of a plan as it was written, and as it was optimised: the first has what the optimiser computes
    /// once, such as the time of day, the second has conditions at the tables they are about.
    pub(crate) fn of_plan(
        written: &LogicalPlan,
        optimised: &LogicalPlan,
        tables: &Tables,
    ) -> Result<Self> {
        let mut inputs = Self::default();
        written.apply_with_subqueries(|plan| {
            plan.apply_expressions(|expression| {
                expression.apply(|part| {
                    inputs.is_timed |= is_timed(part);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        optimised.apply_with_subqueries(|plan| {
            if let LogicalPlan::TableScan(scan) = plan {
                inputs.add(scan, tables);
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(inputs)
    }

    fn add(&mut self, scan: &TableScan, tables: &Tables) {
        let name = scan.table_name.table();
        let is_ours = scan.table_name.schema() != Some("information_schema");
        match (name, tables.topic(name)) {
            ("nodes", _) if is_ours => self.has_nodes = true,
            ("topics", _) => self.has_topics = true,
            (_, Some(topic)) if is_ours => self.wanted.push(Wanted::These(vec![topic])),
            _ if is_ours => self.wanted.push(pushdown::topics(&scan.filters)),
            _ => self.has_topics = true,
        }
    }

    /// Whether the answer changes although nothing is measured: it says how old something is, or what
    /// time it is.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// A number that is another one whenever any of it has changed.
    pub(crate) fn print(&self, source: &dyn Source) -> u64 {
        // Sums, because a source shows topics in any order.
        let mut sum = 0u64;
        for wanted in &self.wanted {
            source.latest(wanted, &mut |row: &Row<'_>| {
                sum = sum.wrapping_add(hash(&(row.of.topic.as_str(), row.sample.time)));
            });
        }
        if self.has_topics {
            source.topics(&Wanted::All, &mut |described| {
                sum = sum.wrapping_add(hash(described.topic.as_str()));
            });
        }
        if self.has_nodes {
            for Node { name, alive, topics, lost_batches, .. } in source.nodes() {
                sum = sum.wrapping_add(hash(&(name, alive, topics, lost_batches)));
            }
        }
        sum
    }
}

fn hash(of: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

fn is_timed(expression: &Expr) -> bool {
    match expression {
        Expr::Column(column) => OF_THE_CLOCK.contains(&column.name.as_str()),
        Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
        _ => false,
    }
}
