//! `nodes`: the nodes of the site.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, StringArray, TimestampNanosecondArray, UInt64Array,
};
use datafusion::arrow::datatypes::DataType;
use skopos_model::Unit;

use crate::column::{Column, UTC};
use crate::rows::{BoxError, Rows};
use crate::scan::Scan;
use crate::source::{Node, Source};
use crate::table::{Fingerprint, Table};

/// The table `nodes`.
#[derive(Debug)]
pub(crate) struct NodeTable {
    columns: Vec<Column>,
    source: Arc<dyn Source>,
}

impl NodeTable {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        let count =
            |name: &'static str, help: &'static str| Column::new(name, DataType::UInt64, help);
        let columns = vec![
            Column::text("node", "Name of the node: the first segment of its topics"),
            Column::new("alive", DataType::Boolean, "True if its publisher of facts is alive"),
            count("topics", "Number of its topics"),
            Column::time("seen_at", "Time at which it last sent anything, or a source was read"),
            count("lost_batches", "Number of its batches that never arrived"),
            count("malformed_batches", "Number of its messages that were not a batch"),
            Column::number(
                "clock_offset",
                Unit::SECONDS,
                "Time by which its clock is ahead of the clock here, if that is known",
            ),
        ];
        Self { columns, source }
    }
}

impl Table for NodeTable {
    fn name(&self) -> &str {
        "nodes"
    }

    fn help(&self) -> &str {
        "Nodes of the site, with the number of their topics and the time of their last message"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let nodes = self.source.nodes();
        let counts = |of: fn(&Node) -> u64| -> ArrayRef {
            Arc::new(UInt64Array::from_iter_values(nodes.iter().map(of)))
        };
        let names = nodes.iter().map(|node| Some(node.name.as_str()));
        let times = nodes.iter().map(|node| Some(node.seen_at.as_nanos()));
        let offsets = nodes.iter().map(|node| node.clock_offset.map(|nanos| nanos as f64 / 1e9));
        let columns: [ArrayRef; 7] = [
            Arc::new(names.collect::<StringArray>()),
            Arc::new(nodes.iter().map(|node| Some(node.alive)).collect::<BooleanArray>()),
            counts(|node| node.topics),
            Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone(UTC)),
            counts(|node| node.lost_batches),
            counts(|node| node.malformed_batches),
            Arc::new(offsets.collect::<Float64Array>()),
        ];
        Ok(Rows::of(scan.select(&columns)?))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        // A sum, because a source shows nodes in any order. `seen_at` is left out: it changes with every
        // message.
        let mut sum = 0u64;
        for Node { name, alive, topics, lost_batches, .. } in self.source.nodes() {
            let mut hasher = DefaultHasher::new();
            (name, alive, topics, lost_batches).hash(&mut hasher);
            sum = sum.wrapping_add(hasher.finish());
        }
        Fingerprint::Version(sum)
    }
}
