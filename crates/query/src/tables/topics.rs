//! `topics`: every topic, with its meaning.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray};
use skopos_model::schema;

use crate::column::Column;
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::{Described, Source};
use crate::table::{Fingerprint, Table};
use crate::tables::sample_column::instance;

/// Number of columns.
const COLUMNS: usize = 11;

/// The table `topics`.
#[derive(Debug)]
pub(crate) struct TopicTable {
    columns: Vec<Column>,
    source: Arc<dyn Source>,
}

impl TopicTable {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        let columns: [(&'static str, &'static str); COLUMNS] = [
            ("topic", "Name of the vertex"),
            ("node", "First segment of the topic"),
            ("family", "Family of facts that the topic belongs to, if it is a fact"),
            ("instance", "Device, core or other instance of the family that the fact is about"),
            ("metric", "Last segment of the topic"),
            ("unit", "Unit of the values"),
            ("kind", "`counter`, `gauge` or `state`"),
            ("value_type", "Type of the values"),
            ("help", "Meaning of the values, if the topic is a fact"),
            ("source", "Kernel file or document that the values come from, if the topic is a fact"),
            ("publisher", "Segment or node that publishes the topic"),
        ];
        let columns = columns.map(|(name, help)| Column::text(name, help));
        Self { columns: columns.into(), source }
    }
}

impl Table for TopicTable {
    fn name(&self) -> &str {
        "topics"
    }

    fn help(&self) -> &str {
        "Every topic that is published, with unit, kind and help"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let topics = scan.topics();
        let mut columns: [Vec<Option<String>>; COLUMNS] = Default::default();
        self.source.topics(topics.wanted(), &mut |described: &Described<'_>| {
            let topic = described.topic;
            if !topics.fits(topic) {
                return;
            }
            let fact = schema::lookup_in_family(topic);
            let row = [
                Some(topic.as_str()),
                Some(topic.node()),
                fact.map(|(family, _)| family.name),
                instance(topic),
                Some(topic.metric()),
                Some(described.unit.as_str()),
                Some(described.kind.name()),
                Some(described.value_type.name()),
                fact.map(|(_, metric)| metric.help),
                fact.map(|(family, _)| family.source),
                Some(described.publisher),
            ];
            for (column, cell) in columns.iter_mut().zip(row) {
                column.push(cell.map(str::to_owned));
            }
        });
        let columns = columns.map(|column| Arc::new(StringArray::from(column)) as ArrayRef);
        Ok(Rows::of(scan.select(&columns)?))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        // A sum, because a source shows topics in any order.
        let mut sum = 0u64;
        self.source.topics(scan.topics().wanted(), &mut |described| {
            let mut hasher = DefaultHasher::new();
            described.topic.as_str().hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
        });
        Fingerprint::Version(sum)
    }
}
