//! What an answer depends on: for questions that stand, and are asked again when something changed.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan, Volatility};
use skopos_eval::{Like, Statement};
use skopos_model::{Topic, schema};

use crate::source::{Node, Row, Source, Wanted};
use crate::tables::subset::Subset;
use crate::tables::{self, Tables, pushdown};

/// Columns whose values change as the clock goes, and not only when a sample comes.
const OF_THE_CLOCK: [&str; 3] = ["age", "checked_at", "seen_at"];

/// Topics that are read: those that are wanted and fit all of what else is known of them.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    wanted: Wanted,
    and: Vec<Fits>,
}

/// What is known of a topic that is read.
#[derive(Clone, Debug)]
pub(crate) enum Fits {
    /// This statement can read it.
    Statement(Statement),
    /// It is like this.
    Like(Like),
    /// It is in this part of the topics.
    Part(Subset),
    /// It is of one of these families.
    Families(Vec<String>),
    /// It is of one of these metrics.
    Metrics(Vec<String>),
}

impl Fits {
    fn selects(&self, topic: &Topic) -> bool {
        let is_in = |texts: &[String], name| texts.iter().any(|text| text == name);
        match self {
            Self::Statement(statement) => statement.matches(topic),
            Self::Like(like) => like.matches(topic.as_str()),
            Self::Part(part) => part.selects(topic),
            Self::Families(names) => {
                schema::lookup_in_family(topic).is_some_and(|(family, _)| is_in(names, family.name))
            }
            Self::Metrics(names) => is_in(names, topic.metric()),
        }
    }
}

impl From<Wanted> for Read {
    fn from(wanted: Wanted) -> Self {
        Self { wanted, and: Vec::new() }
    }
}

impl Read {
    pub(crate) fn new(wanted: Wanted, and: impl IntoIterator<Item = Fits>) -> Self {
        Self { wanted, and: and.into_iter().collect() }
    }

    /// By a scan of a table that is not of one topic.
    fn of_scan(table: &str, filters: &[Expr]) -> Self {
        let texts = |column| pushdown::texts(filters, column);
        let wanted = pushdown::topics(filters);
        match table {
            // Its column `topic` is about whose value it was, and not about where the event is.
            "anomalies" => Self::new(Wanted::All, [Fits::Part(Subset::Below("anomaly"))]),
            "latest" | "samples" | "self" | "insights" => {
                let part = match table {
                    "self" => Some(Subset::Below("self")),
                    "insights" => Some(Subset::Below("insight")),
                    _ => None,
                };
                let like = pushdown::like(filters).map(Fits::Like);
                let families = texts("family").map(Fits::Families);
                let metrics = texts("metric").map(Fits::Metrics);
                let all = [part.map(Fits::Part), like, families, metrics];
                Self::new(wanted, all.into_iter().flatten())
            }
            _ => match tables::family(table) {
                Some(family) => Self::new(wanted, [Fits::Families(vec![family.name.to_owned()])]),
                None => wanted.into(),
            },
        }
    }

    fn selects(&self, topic: &Topic) -> bool {
        self.and.iter().all(|fits| fits.selects(topic))
    }
}

/// What an answer depends on.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The topics, by what is scanned.
    reads: Vec<Read>,
    /// Whether it says which nodes are there.
    has_nodes: bool,
    /// Whether it says which topics there are.
    has_topics: bool,
    /// Whether it changes as the clock goes.
    is_timed: bool,
}

impl Inputs {
    /// Of samples of these topics.
    pub(crate) fn of(reads: Vec<Read>, is_timed: bool) -> Self {
        Self { reads, is_timed, ..Self::default() }
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
            // The archive tells nobody when it gets a report.
            ("tasks" | "jobs", _) if is_ours => self.is_timed = true,
            (_, Some(topic)) if is_ours => self.reads.push(Wanted::These(vec![topic]).into()),
            _ if is_ours => self.reads.push(Read::of_scan(name, &scan.filters)),
            _ => self.has_topics = true,
        }
    }

    /// Whether the answer changes although nothing is measured: it says how old something is, or what
    /// time it is.
    pub fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// A number that is another one whenever any of it has changed, of topics that `counts`.
    pub(crate) fn print(&self, source: &dyn Source, counts: &dyn Fn(&Topic) -> bool) -> u64 {
        // Sums, because a source shows topics in any order.
        let mut sum = 0u64;
        for read in &self.reads {
            source.latest(&read.wanted, &mut |row: &Row<'_>| {
                if read.selects(row.of.topic) && counts(row.of.topic) {
                    sum = sum.wrapping_add(hash(&(row.of.topic.as_str(), row.sample.time)));
                }
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
