//! `insights`: the latest value of each insight, with its formula and the reason why it has no value.

use std::fmt;
use std::sync::Arc;

use skopos_model::Topic;
use skopos_query::arrow::array::{ArrayRef, AsArray as _, StringArray};
use skopos_query::{
    BoxError, Column, Fingerprint, Rows, Scan, Source, Table, TopicFilter, latest_columns,
    latest_samples,
};

/// The second segment of an insight's topic.
const SEGMENT: &str = "insight";

/// The description of an insight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsightInfo {
    /// The formula that computes it, if it is known here.
    pub formula: Option<String>,
    /// The reason why it has no value now.
    pub reason: Option<String>,
}

/// Returns the description of the insight at a topic.
pub type LookUp = Box<dyn Fn(&Topic) -> InsightInfo + Send + Sync>;

/// The table `insights`.
pub(super) struct Insights {
    columns: Vec<Column>,
    source: Arc<dyn Source>,
    look_up: LookUp,
}

impl Insights {
    pub(super) fn new(source: Arc<dyn Source>, look_up: LookUp) -> Self {
        let mut columns = latest_columns();
        columns.push(Column::text("formula", "SQL or formula that computes the insight"));
        columns.push(Column::text("reason", "Reason why the insight has no value now"));
        Self { columns, source, look_up }
    }
}

impl fmt::Debug for Insights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Insights")
    }
}

fn topics(scan: &Scan) -> TopicFilter {
    scan.topics().clone().below(SEGMENT)
}

impl Table for Insights {
    fn name(&self) -> &str {
        "insights"
    }

    fn help(&self) -> &str {
        "Latest value of each insight, with its formula and the reason why it is unknown"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let latest = latest_samples(&*self.source, &topics(scan))?;
        // Looked up after the source has shown its rows, during which it may hold locks.
        let (mut formulas, mut reasons) = (Vec::new(), Vec::new());
        for topic in latest.column(0).as_string::<i32>().iter().flatten() {
            let info = Topic::new(topic).map(|topic| (self.look_up)(&topic)).unwrap_or_default();
            formulas.push(info.formula);
            reasons.push(info.reason);
        }
        let own = [formulas, reasons].map(|texts| Arc::new(StringArray::from(texts)) as ArrayRef);
        let all: Vec<ArrayRef> = latest.columns().iter().cloned().chain(own).collect();
        Ok(Rows::of(scan.select(&all)?))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(topics(scan))
    }
}
