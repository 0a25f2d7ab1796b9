//! Rows of `latest`, by topic.

use std::collections::HashSet;

use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, SetExpr};
use skopos_eval::Like;
use skopos_model::Topic;

use crate::ast::{folded, text};
use crate::functions::ESCAPE;
use crate::inputs::Inputs;
use crate::point::select::{columns_of, plain_table};
use crate::source::{Row, Source, Wanted};
use crate::tables::{LATEST, SampleBatch, SampleColumn, beginning};
use crate::topic_filter::{Condition, TopicFilter};

/// Rows of `latest`.
#[derive(Debug)]
pub(crate) struct Rows {
    wanted: Wanted,
    like: Option<Like>,
    columns: Vec<SampleColumn>,
    names: Vec<String>,
}

impl Rows {
    pub(super) fn compile(body: &SetExpr) -> Option<Self> {
        let SetExpr::Select(select) = body else { return None };
        if plain_table(select)? != "latest" {
            return None;
        }
        let (wanted, like) = predicate(select.selection.as_ref()?)?;
        let (columns, names) = columns_of(select, LATEST)?;
        Some(Self { wanted, like, columns, names })
    }

    pub(super) fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let mut batch = SampleBatch::named(&self.columns, &self.names, source.now());
        source.latest(&self.wanted, &mut |row: &Row<'_>| {
            let topic = row.of.topic.as_str();
            let is_like = self.like.as_ref().is_none_or(|like| like.matches(topic));
            if is_like && self.wanted.selects(topic) {
                batch.push(row);
            }
        });
        batch.take().ok()
    }

    pub(super) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub(super) fn inputs(&self) -> Inputs {
        let of_clock =
            |column: &SampleColumn| matches!(column, SampleColumn::Age | SampleColumn::CheckedAt);
        let topics = TopicFilter::from(self.wanted.clone());
        let topics = topics.and(self.like.clone().map(Condition::Like));
        Inputs::of_samples(vec![topics], self.columns.iter().any(of_clock))
    }
}

/// Reads `topic = 'a'`, `topic IN ('a', 'b')` or `topic LIKE 'a%'`.
fn predicate(expression: &Expr) -> Option<(Wanted, Option<Like>)> {
    let is_topic = |expr: &Expr| matches!(expr, Expr::Identifier(i) if folded(i) == "topic");
    match expression {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } if is_topic(left) => {
            Some((these([&**right])?, None))
        }
        Expr::InList { expr, list, negated: false } if is_topic(expr) => Some((these(list)?, None)),
        Expr::Like { negated: false, any: false, expr, pattern, escape_char: None }
            if is_topic(expr) =>
        {
            let pattern = text(pattern)?;
            let like = Like::new(pattern, ESCAPE.chars().next())?;
            Some((beginning(pattern), Some(like)))
        }
        _ => None,
    }
}

/// Returns each topic of a list once. A text that is not a topic selects no row.
fn these<'e>(list: impl IntoIterator<Item = &'e Expr>) -> Option<Wanted> {
    let (mut topics, mut known) = (Vec::new(), HashSet::new());
    for expression in list {
        if let Ok(topic) = Topic::new(text(expression)?)
            && known.insert(topic.clone())
        {
            topics.push(topic);
        }
    }
    Some(Wanted::These(topics))
}
