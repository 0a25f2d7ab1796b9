//! `ranks`: the rank of each candidate of a profile, as the agent of a node published it last.

use std::sync::Arc;

use skopos_model::Unit;
use skopos_query::arrow::array::{
    ArrayRef, Float64Array, StringArray, TimestampNanosecondArray, UInt64Array,
};
use skopos_query::arrow::datatypes::DataType;
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Source, Table, TopicFilter};

use crate::ranks::{Rank, SEGMENT, ranks};

/// The table `ranks`.
#[derive(Debug)]
pub(super) struct Ranks {
    columns: Vec<Column>,
    source: Arc<dyn Source>,
}

impl Ranks {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        let count = |name, help| Column::new(name, DataType::UInt64, help);
        let number = |name, help| Column::number(name, Unit::NONE, help);
        let age = "Age of the oldest value that counts, when it was ranked; null if no value does";
        let columns = vec![
            Column::text("node", "Node whose agent ranks"),
            Column::text("profile", "Profile of the ranking"),
            Column::text("candidate", "Candidate"),
            count("place", "Place, from 1 for the best"),
            number("weight", "Share of requests; the weights of a profile sum to 1"),
            number("score", "0 for the best in everything, 1 for twice as bad"),
            number("trust", "Mean trust of the values: 1 if all are fresh, 0 if all are missing"),
            count("samples", "Fewest samples behind a value that counts"),
            Column::number("age_seconds", Unit::SECONDS, age),
            Column::text("state", "`known`, `flapping`, `contradicted`, `unknown` or `excluded`"),
            Column::time("time", "Time of the last change"),
            Column::time("checked_at", "Time of the last ranking"),
        ];
        Self { columns, source }
    }
}

/// Returns the topics of ranks. Of the conditions only those on nodes are about topics.
fn topics(scan: &Scan) -> TopicFilter {
    scan.nodes().map_or_else(TopicFilter::all, TopicFilter::of_nodes).below(SEGMENT)
}

impl Table for Ranks {
    fn name(&self) -> &str {
        "ranks"
    }

    fn help(&self) -> &str {
        "Rank of each candidate of a profile, as the agent of a node published it last"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let ranks = ranks(&*self.source, &topics(scan));
        let text = |of: fn(&Rank) -> Option<&str>| -> ArrayRef {
            Arc::new(ranks.iter().map(of).collect::<StringArray>())
        };
        let number = |of: fn(&Rank) -> Option<f64>| -> ArrayRef {
            Arc::new(ranks.iter().map(of).collect::<Float64Array>())
        };
        let count = |of: fn(&Rank) -> Option<u64>| -> ArrayRef {
            Arc::new(ranks.iter().map(of).collect::<UInt64Array>())
        };
        let time = |of: fn(&Rank) -> i64| -> ArrayRef {
            let times = TimestampNanosecondArray::from_iter_values(ranks.iter().map(of));
            Arc::new(times.with_timezone("UTC"))
        };
        Ok(Rows::of(scan.select(&[
            text(|rank| Some(&rank.node)),
            text(|rank| Some(&rank.profile)),
            text(|rank| Some(&rank.candidate)),
            count(|rank| rank.place),
            number(|rank| rank.weight),
            number(|rank| rank.score),
            number(|rank| rank.trust),
            count(|rank| rank.samples),
            number(|rank| rank.age_seconds),
            text(|rank| rank.state),
            time(|rank| rank.time.as_nanos()),
            time(|rank| rank.checked_at.as_nanos()),
        ])?))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(topics(scan))
    }
}
