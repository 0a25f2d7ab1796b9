//! The inputs of a statement: samples and tables that its answer depends on. A watched statement runs again
//! when an input has changed.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use skopos_model::Topic;

use crate::scan::Scan;
use crate::source::{Row, Source};
use crate::table::{Fingerprint, Table};
use crate::tables::{LatestAtTable, RegisteredTable, SampleTable};
use crate::topic_filter::TopicFilter;

/// Columns whose values change with the clock, and not only when a sample arrives.
const OF_THE_CLOCK: [&str; 3] = ["age", "checked_at", "seen_at"];

/// The inputs of a statement.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// Topics whose samples change the answer.
    samples: Vec<TopicFilter>,
    /// Tables that know a version of their rows, with the scan that reads them.
    versions: Vec<(Arc<dyn Table>, Scan)>,
    is_timed: bool,
}

impl Inputs {
    /// Returns the inputs of a statement that reads samples alone.
    pub(crate) fn of_samples(samples: Vec<TopicFilter>, is_timed: bool) -> Self {
        Self { samples, is_timed, ..Self::default() }
    }

    /// Returns the inputs of a plan, given before and after optimisation. The first still has what the
    /// optimiser computes, such as the time of day; the second has conditions at the tables that they are
    /// about.
    pub(crate) fn of_plan(written: &LogicalPlan, optimised: &LogicalPlan) -> Result<Self> {
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
                inputs.add(scan)?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(inputs)
    }

    fn add(&mut self, scan: &TableScan) -> Result<()> {
        let TableScan { source, projection, filters, fetch, .. } = scan;
        let Ok(provider) = source_as_provider(source) else { return Ok(()) };
        if let Some(table) = provider.downcast_ref::<RegisteredTable>() {
            let scan = table.scan_of(projection.as_ref(), filters, *fetch)?;
            match table.fingerprint(&scan) {
                Fingerprint::Samples(topics) => self.samples.push(topics),
                Fingerprint::Version(_) => self.versions.push((table.table().clone(), scan)),
                Fingerprint::Unknown => self.is_timed = true,
            }
        } else if let Some(table) = provider.downcast_ref::<SampleTable>() {
            self.samples.push(table.topics(filters));
        } else if let Some(table) = provider.downcast_ref::<LatestAtTable>() {
            self.samples.push(table.topics(filters));
            self.is_timed |= table.moves();
        }
        // The others are DataFusion's own, such as `information_schema`: they never change.
        Ok(())
    }

    /// Returns true if the answer changes with the clock although no input does: it tells an age or the
    /// time of day, or a table does not know when its rows change.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Returns true if samples of `topic` change the answer.
    pub fn selects(&self, topic: &Topic) -> bool {
        self.samples.iter().any(|topics| topics.selects(topic))
    }

    /// Returns true if an input may change without a new sample, so that the fingerprint has to be compared
    /// at intervals.
    pub fn is_polled(&self) -> bool {
        !self.versions.is_empty()
    }

    /// Returns a fingerprint: it changes whenever an input does. Samples of topics that `counts` returns
    /// false for are left out.
    pub(crate) fn fingerprint(&self, source: &dyn Source, counts: &dyn Fn(&Topic) -> bool) -> u64 {
        // A sum, because a source shows topics in any order.
        let mut sum = 0u64;
        for topics in &self.samples {
            source.latest(topics.wanted(), &mut |row: &Row<'_>| {
                if topics.fits(row.of.topic) && counts(row.of.topic) {
                    sum = sum.wrapping_add(hash(&(row.of.topic.as_str(), row.sample.time)));
                }
            });
        }
        for (at, (table, scan)) in self.versions.iter().enumerate() {
            if let Fingerprint::Version(version) = table.fingerprint(scan) {
                sum = sum.wrapping_add(hash(&(at, version)));
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
