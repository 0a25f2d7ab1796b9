//! Aggregates over `latest`, with the evaluator of the agents' SQL insights.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr};
use skopos_eval::{Evaluator, Statement, Unknown};

use crate::ast::{folded, name_of};
use crate::inputs::Inputs;
use crate::point::doubles;
use crate::point::select::plain_table;
use crate::source::{Row, Source, Wanted};
use crate::tables::value;
use crate::topic_filter::{Condition, TopicFilter};

/// Beyond this, a sum or a difference can be infinite on the way, and depends on the order. The planner then decides.
const HUGE: f64 = 1e292;

/// Aggregates over `latest`.
#[derive(Debug)]
pub(crate) struct Aggregates {
    statement: Statement,
    wanted: Wanted,
    schema: Arc<Schema>,
    /// For each column, true if the planner returns an integer.
    are_counts: Vec<bool>,
}

impl Aggregates {
    pub(super) fn compile(sql: &str, body: &SetExpr) -> Option<Self> {
        let SetExpr::Select(select) = body else { return None };
        if plain_table(select)? != "latest" || !doubles::suffice(select) {
            return None;
        }
        // `rate` and `ema` over `latest` need a history that a point read does not have.
        let statement = Statement::new(sql).ok().filter(|s| !s.reads_history())?;
        let (mut names, mut are_counts) = (Vec::<String>::new(), Vec::new());
        for item in &select.projection {
            let (expression, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                _ => return None,
            };
            let Expr::Function(function) = expression else { return None };
            if names.contains(&name) || !doubles::is_aggregate(function) {
                return None;
            }
            are_counts.push(function.name.to_string().eq_ignore_ascii_case("count"));
            names.push(name);
        }
        let field = |(name, is_count): (&String, &bool)| {
            Field::new(name, if *is_count { DataType::Int64 } else { DataType::Float64 }, true)
        };
        let fields: Vec<Field> = names.iter().zip(&are_counts).map(field).collect();
        let starts = statement
            .topics()
            .iter()
            .map(|pattern| pattern.as_str().split('*').next().unwrap_or_default().to_owned());
        let wanted = Wanted::Starting(starts.collect());
        Some(Self { statement, wanted, schema: Arc::new(Schema::new(fields)), are_counts })
    }

    pub(super) fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let now = source.now();
        let mut evaluator = Evaluator::new(&self.statement);
        let (mut key, mut is_huge) = (0, false);
        source.latest(&self.wanted, &mut |row: &Row<'_>| {
            evaluator.row_added(key, row.of.topic, row.of.unit, row.of.kind);
            let number = value(row);
            is_huge |= number.is_some_and(|number| number.abs() > HUGE);
            // Ages are the only values that depend on times.
            evaluator.row_changed(key, row.here(row.sample.time), number);
            evaluator.row_held(key, row.polled_at(now));
            key = key.saturating_add(1);
        });
        if is_huge {
            return None;
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        for (output, is_count) in self.are_counts.iter().enumerate() {
            let number = match evaluator.value(output, now) {
                Ok(number) => Some(number),
                Err(Unknown::NoTopic | Unknown::NoRow { .. }) => is_count.then_some(0.0),
                // DataFusion has other rules than the evaluator, such as for a division by zero.
                Err(_) => return None,
            };
            columns.push(match is_count {
                true => Arc::new(Int64Array::from(vec![number.map(|n| n as i64)])),
                false => Arc::new(Float64Array::from(vec![number])),
            });
        }
        RecordBatch::try_new(self.schema.clone(), columns).ok()
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub(super) fn inputs(&self) -> Inputs {
        let topics = TopicFilter::from(self.wanted.clone());
        let topics = topics.and([Condition::Statement(self.statement.clone())]);
        Inputs::of_samples(vec![topics], self.statement.is_timed())
    }
}
