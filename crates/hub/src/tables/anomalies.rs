//! `anomalies`: the events that detectors published, a row each, as far back as `samples` reaches.

use std::sync::Arc;

use skopos_model::{Structured, Timestamp, Unit};
use skopos_query::arrow::array::{
    Array as _, ArrayRef, AsArray as _, Float64Builder, RecordBatch, StringBuilder,
    TimestampNanosecondBuilder, UInt64Builder,
};
use skopos_query::arrow::datatypes::{DataType, TimestampNanosecondType};
use skopos_query::{
    BoxError, Column, Fingerprint, Rows, SampleReader, Scan, Source, Table, TopicFilter,
};

/// The second segment of the topics of events.
const SEGMENT: &str = "anomaly";

/// Columns of `samples` that a row is made of.
const READ: [&str; 3] = ["node", "time", "text"];

/// Columns that are texts of the event, by the names of its fields.
const TEXTS: [(&str, &str); 4] = [
    ("topic", "Topic whose value was unusual"),
    ("rule", "Name of the rule that found it"),
    ("detector", "Method of the rule"),
    ("state", "`raised` or `cleared`"),
];

/// Columns that are numbers of the event, with the place of each in it.
const NUMBERS: [(&str, &str, &str); 5] = [
    ("came", "/came", "Value, rate of a counter, or mean since a change point"),
    ("expected", "/expected/value", "Value that the detector expected"),
    ("low", "/expected/low", "Lower bound of usual values"),
    ("high", "/expected/high", "Upper bound of usual values"),
    ("score", "/score", "Distance from the expected value: 1 at the bound, 2 twice as far"),
];

/// The table `anomalies`.
#[derive(Debug)]
pub(super) struct Anomalies {
    columns: Vec<Column>,
    samples: SampleReader,
}

impl Anomalies {
    pub(super) fn new(source: Arc<dyn Source>) -> Self {
        let mut columns = vec![Column::text("node", "Node whose detector published the event")];
        columns.extend(TEXTS.map(|(name, help)| Column::text(name, help)));
        columns.push(Column::time("time", "Time of the event"));
        columns.push(Column::time("since", "Time at which the anomaly began"));
        columns.extend(NUMBERS.map(|(name, _, help)| Column::number(name, Unit::NONE, help)));
        let help = "Changes of state since the previous event that were not published";
        columns.push(Column::new("suppressed", DataType::UInt64, help));
        columns.push(Column::text("text", "The whole event as JSON"));
        Self { columns, samples: SampleReader::new(source) }
    }
}

/// Returns the topics of events. A condition on the column `topic` is about the topic whose value was
/// unusual, and not about the topic of the event, so only conditions on nodes count.
fn topics(scan: &Scan) -> TopicFilter {
    let all = scan.nodes().map_or_else(TopicFilter::all, TopicFilter::of_nodes);
    all.below(SEGMENT)
}

impl Table for Anomalies {
    fn name(&self) -> &str {
        "anomalies"
    }

    fn help(&self) -> &str {
        "Events that detectors of anomalies published"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
        let times = scan.times("time").cloned().unwrap_or(always);
        let samples = self.samples.read(&READ, topics(scan), times, scan)?;
        let scan = scan.clone();
        Ok(samples.map(move |samples| scan.select(&events(&samples))))
    }

    fn fingerprint(&self, scan: &Scan) -> Fingerprint {
        Fingerprint::Samples(topics(scan))
    }
}

/// Returns all columns of the events in a batch of samples.
fn events(samples: &RecordBatch) -> Vec<ArrayRef> {
    let (nodes, texts) =
        (samples.column(0).as_string::<i32>(), samples.column(2).as_string::<i32>());
    let times = samples.column(1).as_primitive::<TimestampNanosecondType>();
    let mut events = Events::default();
    for row in (0..samples.num_rows()).filter(|row| texts.is_valid(*row)) {
        // The text was checked when it was published; a row of another kind is left out.
        if let Ok(event) = Structured::from_json(texts.value(row)) {
            events.push(nodes.value(row), times.value(row), &event);
        }
    }
    events.finish()
}

/// Builders of the columns.
#[derive(Default)]
struct Events {
    nodes: StringBuilder,
    texts: [StringBuilder; TEXTS.len()],
    times: [TimestampNanosecondBuilder; 2],
    numbers: [Float64Builder; NUMBERS.len()],
    suppressed: UInt64Builder,
    whole: StringBuilder,
}

impl Events {
    fn push(&mut self, node: &str, time: i64, event: &Structured) {
        let fields = event.as_json();
        self.nodes.append_value(node);
        for ((name, _), texts) in TEXTS.iter().zip(&mut self.texts) {
            texts.append_option(fields.get(name).and_then(|text| text.as_str()));
        }
        let since = fields.get("since_ns").and_then(|time| time.as_i64());
        self.times[0].append_value(time);
        self.times[1].append_option(since);
        for ((_, place, _), numbers) in NUMBERS.iter().zip(&mut self.numbers) {
            numbers.append_option(fields.pointer(place).and_then(|number| number.as_f64()));
        }
        self.suppressed.append_option(fields.get("suppressed").and_then(|count| count.as_u64()));
        self.whole.append_value(event.to_string());
    }

    fn finish(mut self) -> Vec<ArrayRef> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(self.nodes.finish())];
        columns.extend(self.texts.iter_mut().map(|texts| Arc::new(texts.finish()) as ArrayRef));
        for mut times in self.times {
            columns.push(Arc::new(times.finish().with_timezone("UTC")));
        }
        columns
            .extend(self.numbers.iter_mut().map(|numbers| Arc::new(numbers.finish()) as ArrayRef));
        columns.push(Arc::new(self.suppressed.finish()));
        columns.push(Arc::new(self.whole.finish()));
        columns
    }
}
