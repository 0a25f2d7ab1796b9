//! A wide table for each family of facts: a row for each node and instance, a column for each metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Float64Builder, StringBuilder, TimestampNanosecondBuilder,
};
use skopos_model::schema::{self, Family};
use skopos_model::{Origin, Value, core_list};

use crate::column::{Column, UTC};
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::{Row, Source};
use crate::table::{Fingerprint, Table};
use crate::tables::sample_column::{SampleColumn, instance, value};
use crate::topic_filter::TopicFilter;

/// The columns before those of the metrics.
const KEYS: [SampleColumn; 3] =
    [SampleColumn::Node, SampleColumn::Instance, SampleColumn::CheckedAt];

/// The latest values of one family.
#[derive(Debug)]
pub(crate) struct WideTable {
    columns: Vec<Column>,
    family: &'static Family,
    source: Arc<dyn Source>,
}

/// A row: the latest time at which a source was read, and a value for each metric.
struct WideRow {
    checked_at: i64,
    values: Vec<Option<f64>>,
}

impl WideTable {
    pub(crate) fn new(source: Arc<dyn Source>, family: &'static Family) -> Self {
        let keys = KEYS.iter().map(|key| key.column());
        let metrics = family.metrics.iter().map(|m| Column::number(m.name, m.unit, m.help));
        Self { columns: keys.chain(metrics).collect(), family, source }
    }

    /// Returns the topics of the family. Of the conditions only those on nodes are about topics: a metric
    /// may have the name of a part of a topic.
    fn topics(&self, scan: &Scan) -> TopicFilter {
        let all = scan.nodes().map_or_else(TopicFilter::all, TopicFilter::of_nodes);
        all.of_families(vec![self.family.name.to_owned()])
    }

    fn rows(&self, topics: &TopicFilter) -> BTreeMap<(String, Option<String>), WideRow> {
        let family = self.family;
        let mut rows: BTreeMap<(String, Option<String>), WideRow> = BTreeMap::new();
        self.source.latest(topics.wanted(), &mut |row: &Row<'_>| {
            let topic = row.of.topic;
            let Some((of, metric)) = schema::lookup_in_family(topic) else { return };
            if of.name != family.name {
                return;
            }
            let Some(at) = family.metrics.iter().position(|m| m.name == metric.name) else {
                return;
            };
            let mut set = |instance: Option<String>, value: Option<f64>| {
                let key = (topic.node().to_owned(), instance);
                let wide = rows.entry(key).or_insert_with(|| WideRow {
                    checked_at: i64::MIN,
                    values: vec![None; family.metrics.len()],
                });
                wide.checked_at = wide.checked_at.max(row.checked_at.as_nanos());
                wide.values[at] = value;
            };
            match instance(topic) {
                // A list of cores has a row for each core, as where cores have facts of their own.
                Some(instance) if core_list::first_core(instance).is_some() => {
                    for (core, value) in members(instance, row) {
                        set(Some(core_list::member(family, core)), Some(value));
                    }
                }
                instance => set(instance.map(str::to_owned), value(row)),
            }
        });
        rows
    }
}

/// Returns the members of a list of cores; empty if its value is unknown.
fn members<'r>(instance: &'r str, row: &'r Row<'_>) -> impl Iterator<Item = (usize, f64)> + 'r {
    let list = match &row.sample.value {
        Value::Structured(list) if row.sample.origin != Origin::Unknown => Some(list),
        _ => None,
    };
    list.into_iter().flat_map(|list| core_list::members(instance, list))
}

impl Table for WideTable {
    fn name(&self) -> &str {
        self.family.name
    }

    fn help(&self) -> &str {
        self.family.help
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let (mut nodes, mut instances) = (StringBuilder::new(), StringBuilder::new());
        let mut times = TimestampNanosecondBuilder::new().with_timezone(UTC);
        let mut values: Vec<_> =
            self.family.metrics.iter().map(|_| Float64Builder::new()).collect();
        for ((node, instance), wide) in self.rows(&self.topics(scan)) {
            nodes.append_value(node);
            instances.append_option(instance);
            times.append_value(wide.checked_at);
            for (builder, value) in values.iter_mut().zip(wide.values) {
                builder.append_option(value);
            }
        }
        let keys: [ArrayRef; 3] =
            [Arc::new(nodes.finish()), Arc::new(instances.finish()), Arc::new(times.finish())];
        let values = values.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef);
        let columns: Vec<ArrayRef> = keys.into_iter().chain(values).collect();
        Ok(Rows::of(scan.select(&columns)?))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(self.topics(scan))
    }
}
