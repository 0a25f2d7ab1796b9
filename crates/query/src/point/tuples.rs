//! The latest tuples of some topics: the paper's resource query.

use std::mem::discriminant;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    Expr, Select, SelectItem, SetExpr, SetOperator, SetQuantifier,
};
use skopos_model::{Kind, Origin, Sample, Structured, Timestamp, Topic, Unit, Value};

use crate::ast::{Extreme, extreme, folded, name_of};
use crate::catalog::Catalog;
use crate::inputs::Inputs;
use crate::point::select::plain_table;
use crate::source::{Described, Row, Source, Wanted, When};
use crate::tables::{OF_A_TOPIC, SampleBatch, SampleColumn};
use crate::topic_filter::TopicFilter;

/// The latest tuples of some topics.
#[derive(Debug)]
pub(crate) struct Tuples {
    /// The topic of each select, also in the form in which a source takes it.
    topics: Vec<(Topic, Wanted)>,
    columns: Vec<SampleColumn>,
    names: Vec<String>,
    is_distinct: bool,
}

/// The latest sample of a topic and its unit; `None` if the topic has no sample.
type Tuple = Option<(Sample, Unit)>;

impl Tuples {
    pub(super) fn compile(body: &SetExpr, catalog: &Catalog) -> Option<Self> {
        // A loop and no recursion, because a union is as deep as it is long.
        let (mut rights, mut quantifiers, mut left) = (Vec::new(), Vec::new(), body);
        while let SetExpr::SetOperation { op, set_quantifier, left: before, right } = left {
            let SetExpr::Select(select) = &**right else { return None };
            if *op != SetOperator::Union {
                return None;
            }
            quantifiers.push(match set_quantifier {
                SetQuantifier::All => false,
                SetQuantifier::None | SetQuantifier::Distinct => true,
                _ => return None,
            });
            rights.push(select);
            left = before;
        }
        let SetExpr::Select(first) = left else { return None };
        let mut all = Self::of_select(first, catalog)?;
        // `a UNION b UNION ALL c` may have a row of `c` twice, so mixed quantifiers go to the planner.
        all.is_distinct = quantifiers.first().copied().unwrap_or_default();
        if quantifiers.iter().any(|is_distinct| *is_distinct != all.is_distinct) {
            return None;
        }
        for select in rights.into_iter().rev() {
            let one = Self::of_select(select, catalog)?;
            if one.columns != all.columns {
                return None;
            }
            all.topics.extend(one.topics);
        }
        Some(all)
    }

    fn of_select(select: &Select, catalog: &Catalog) -> Option<Self> {
        let table = plain_table(select)?;
        let Extreme { at, is_max, by } = extreme(select)?;
        let is_of_time = folded(by) == SampleColumn::PaperTimestamp.name();
        if !is_max || !is_of_time || select.selection.is_some() {
            return None;
        }
        // Only the planner finds samples on disk.
        let topic = catalog.live_topic(&table)?;
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for (other, item) in select.projection.iter().enumerate() {
            let (expression, name) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, name_of(expr)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
                _ => return None,
            };
            let column = match expression {
                _ if other == at => SampleColumn::PaperTimestamp,
                Expr::Identifier(ident) => {
                    let name = folded(ident);
                    *OF_A_TOPIC.iter().find(|c| c.name() == name)?
                }
                _ => return None,
            };
            if names.contains(&name) {
                return None;
            }
            columns.push(column);
            names.push(name);
        }
        let wanted = Wanted::These(vec![topic.clone()]);
        Some(Self { topics: vec![(topic, wanted)], columns, names, is_distinct: false })
    }

    pub(super) fn read(&self, source: &dyn Source) -> Option<RecordBatch> {
        let mut tuples: Vec<(Tuple, &Topic)> = Vec::with_capacity(self.topics.len());
        for (topic, wanted) in &self.topics {
            let mut tuple = None;
            source.latest(wanted, &mut |row: &Row<'_>| {
                if row.of.topic == topic {
                    tuple = Some((row.sample.clone(), row.of.unit));
                }
            });
            if tuple.is_none() && may_have_samples(source, wanted) {
                return None;
            }
            let is_new = |(other, _): &(Tuple, &Topic)| !self.is_same_row(other, &tuple);
            if !self.is_distinct || tuples.iter().all(is_new) {
                tuples.push((tuple, topic));
            }
        }
        let mut batch = SampleBatch::named(&self.columns, &self.names, source.now());
        for (tuple, topic) in &tuples {
            match tuple {
                Some((sample, unit)) => batch.push(&row_of(topic, *unit, sample)),
                None => batch.push_nulls(),
            }
        }
        batch.take().ok()
    }

    /// Returns the number of topics that are read.
    pub(super) fn topics(&self) -> usize {
        self.topics.len()
    }

    pub(super) fn inputs(&self) -> Inputs {
        let topics = self.topics.iter().map(|(_, wanted)| TopicFilter::from(wanted.clone()));
        Inputs::of_samples(topics.collect(), false)
    }

    /// Returns true if two tuples make the same row of the answer.
    fn is_same_row(&self, one: &Tuple, other: &Tuple) -> bool {
        let (Some(one), Some(other)) = (one, other) else {
            return one.is_none() && other.is_none();
        };
        self.columns.iter().all(|column| match column {
            SampleColumn::PaperTimestamp => one.0.time == other.0.time,
            SampleColumn::Unit => one.1 == other.1,
            SampleColumn::Text => text_of(one) == text_of(other),
            SampleColumn::PaperMetric => number_of(one) == number_of(other),
            SampleColumn::Bound => bound_of(one) == bound_of(other),
            _ => discriminant(&one.0.origin) == discriminant(&other.0.origin),
        })
    }
}

fn number_of((sample, _): &(Sample, Unit)) -> Option<f64> {
    let is_known = sample.origin != Origin::Unknown;
    // There is one zero, see `numbers`.
    sample.value.as_f64().filter(|v| is_known && v.is_finite()).map(|v| v + 0.0)
}

fn text_of((sample, _): &(Sample, Unit)) -> Option<&Structured> {
    match &sample.value {
        Value::Structured(text) => Some(text),
        _ => None,
    }
}

/// Returns the bound as bits, because a bound may be NaN, and two NaNs are one row.
fn bound_of((sample, _): &(Sample, Unit)) -> Option<u64> {
    match sample.origin {
        Origin::Predicted { bound } => Some(bound.to_bits()),
        _ => None,
    }
}

/// Returns true if a topic without a latest sample may have samples on disk or on its own node.
fn may_have_samples(source: &dyn Source, wanted: &Wanted) -> bool {
    let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    let remote = || source.remote_samples(wanted, &When::During(always), Instant::now());
    source.has_history() || remote().is_some()
}

fn row_of<'a>(topic: &'a Topic, unit: Unit, sample: &'a Sample) -> Row<'a> {
    let value_type = sample.value.value_type();
    let of = Described { topic, unit, kind: Kind::Gauge, value_type, publisher: "" };
    Row { of, sample, checked_at: sample.time, ahead: 0, age: None }
}
