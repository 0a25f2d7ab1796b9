//! The operators in a logical plan.

use std::cmp::Ordering;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::common::DFSchemaRef;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

/// An operator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum OperatorKind {
    AsOf(AsOf),
    GapFill(GapFill),
}

/// The condition of an `ASOF` join: it selects the row of the right side for each row of the left one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct AsOf {
    /// True for the latest row before, false for the earliest one after.
    pub(super) is_before: bool,
    /// True if a row of the same time matches.
    pub(super) or_same: bool,
}

/// Filling of the gaps between the rows of an aggregation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GapFill {
    /// Position of the time among the columns.
    pub(super) time: usize,
    /// Number of leading columns that the aggregation groups by.
    pub(super) groups: usize,
    /// Nanoseconds between two buckets.
    pub(super) step: i64,
    /// The way in which each computed value is carried into gaps.
    pub(super) carried: Vec<Carried>,
    /// Number of values after those of `carried` that are a time to begin at; the rest are times to end at.
    pub(super) begins: usize,
    /// For each end, true if the bucket of the end itself is part of the answer.
    pub(super) is_closed: Vec<bool>,
}

/// The way in which a value is carried into a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Carried {
    /// The value before the gap.
    Last,
    /// The value on the line between those around the gap.
    Straight,
}

/// An operator in a logical plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OperatorNode {
    pub(super) operator: OperatorKind,
    /// Each input, with the expressions that the operator needs of each of its rows.
    pub(super) inputs: Vec<(LogicalPlan, Vec<Expr>)>,
    pub(super) schema: DFSchemaRef,
}

/// All rows of one input, and the values of its expressions.
pub(super) struct Input {
    pub(super) rows: RecordBatch,
    pub(super) values: Vec<ArrayRef>,
}

impl OperatorNode {
    pub(super) fn plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }
}

impl PartialOrd for OperatorNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for OperatorNode {
    fn name(&self) -> &str {
        match self.operator {
            OperatorKind::AsOf(_) => "AsOfJoin",
            OperatorKind::GapFill(_) => "GapFill",
        }
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().map(|(plan, _)| plan).collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.inputs.iter().flat_map(|(_, exprs)| exprs.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exprs: Vec<String> =
            self.inputs.iter().flat_map(|(_, exprs)| exprs).map(ToString::to_string).collect();
        write!(f, "{}: {}", UserDefinedLogicalNodeCore::name(self), exprs.join(", "))
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, plans: Vec<LogicalPlan>) -> Result<Self> {
        let mut exprs = exprs.into_iter();
        let replaced = plans.into_iter().zip(&self.inputs);
        let inputs =
            replaced.map(|(plan, (_, old))| (plan, exprs.by_ref().take(old.len()).collect()));
        Ok(Self { inputs: inputs.collect(), ..self.clone() })
    }
}
