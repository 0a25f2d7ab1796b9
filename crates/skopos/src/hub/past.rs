//! Both ends of asking for what nodes have kept: a node answers with what is in its memory and on its
//! disk, a hub asks those that it needs and makes parts of what they say.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use skopos_model::{Origin, Sample, Structured, Timestamp, Topic, ValueType};
use skopos_query::arrow::array::{Array as _, AsArray as _, RecordBatch};
use skopos_query::arrow::datatypes::{Float64Type, TimestampNanosecondType, UInt8Type};
use skopos_query::{Elsewhere, Source, Wanted, When, kept};
use skopos_shm::Host;
use skopos_store::history::{Part, Run, Samples, Series};
use skopos_wire::{
    Answered, Answering, Batch, Content, Description, MAX_BATCH_BYTES, Plane, Question, Told,
};

use crate::agent::MIRROR_NAME;
use crate::failure::Failure;
use crate::sql::Local;

/// Samples that one node is asked for at the most. Who has more is missing, and said to be: it is to be
/// asked for less time or fewer topics.
const MOST_SAMPLES: u64 = 2_000_000;

/// Answers whoever asks what `node` has kept, for as long as the result is there.
///
/// # Errors
/// The directory cannot be read; the plane is broken.
pub(super) fn answer(
    plane: &Plane,
    node: &str,
    incarnation: i64,
    dir: PathBuf,
) -> Result<Answering, Failure> {
    let local: Arc<dyn Source> =
        Arc::new(Local::new(Host::open_dirs(vec![dir])?.without(MIRROR_NAME)));
    let name = node.to_owned();
    let answer = move |question: &Question, send: &mut dyn FnMut(&Batch)| {
        let mut answer = Answer::new(&name, question, send);
        let when = match question.only_last {
            true => When::AsOf(question.to),
            false => When::During(question.from..=question.to),
        };
        let shown = kept(&local, &answer.wanted(), &when, &mut |series, batch, run| {
            answer.take(series, batch, run)
        });
        answer.flush();
        shown.is_ok() && answer.is_whole
    };
    let answering = plane.answer_history(node, incarnation, answer);
    answering.map_err(|e| Failure::new("the node cannot answer").because(&e))
}

/// An answer under way.
struct Answer<'a> {
    node: &'a str,
    question: &'a Question,
    send: &'a mut dyn FnMut(&Batch),
    batch: Batch,
    bytes: usize,
    samples: u64,
    is_whole: bool,
    /// The series that was described last, and its index.
    described: Option<(Series, u32)>,
}

impl<'a> Answer<'a> {
    fn new(node: &'a str, question: &'a Question, send: &'a mut dyn FnMut(&Batch)) -> Self {
        let (batch, bytes) = (Batch::default(), Batch::default().most_bytes());
        Self { node, question, send, batch, bytes, samples: 0, is_whole: true, described: None }
    }

    /// What is wanted, by the names that topics have here: those of other programs need not begin with
    /// the node's.
    fn wanted(&self) -> Wanted {
        let start = format!("{}/", self.node);
        let mut starts: Vec<String> = self.question.topics.clone();
        for text in &self.question.starts {
            match start.starts_with(text.as_str()) {
                true => return Wanted::All,
                false => starts.push(text.clone()),
            }
        }
        let short: Vec<String> =
            starts.iter().filter_map(|text| text.strip_prefix(&start)).map(str::to_owned).collect();
        starts.extend(short);
        Wanted::Starting(starts)
    }

    /// Takes in some rows. False when it is enough.
    fn take(&mut self, series: &Series, batch: &RecordBatch, run: &Run) -> bool {
        let Some(topic) = full(&series.topic, self.node) else { return true };
        let is_wanted = self.question.topics.iter().any(|t| t == topic.as_str())
            || self.question.starts.iter().any(|s| topic.as_str().starts_with(s.as_str()));
        if !is_wanted {
            return true;
        }
        let before = self.described.as_ref();
        let index = match before.filter(|(known, _)| known == series) {
            Some((_, index)) => *index,
            None => {
                let index = before.map_or(0, |(_, index)| index + 1);
                self.described = Some((series.clone(), index));
                let (unit, kind) = (series.unit, series.kind);
                // As SQL has it: numbers are doubles.
                let value_type = match series.value_type {
                    ValueType::Structured => ValueType::Structured,
                    _ => ValueType::F64,
                };
                let description = Description { index, topic, unit, kind, value_type };
                let one = Batch { described: vec![description], ..Batch::default() };
                self.make_room(one.most_bytes());
                self.batch.described.extend(one.described);
                index
            }
        };
        for row in run.start..run.start + run.rows {
            if self.samples == self.question.most {
                self.is_whole = false;
                return false;
            }
            self.samples += 1;
            let told = told(index, batch, row);
            let one = Batch { samples: vec![told], ..Batch::default() };
            self.make_room(one.most_bytes());
            self.batch.samples.extend(one.samples);
        }
        true
    }

    fn make_room(&mut self, bytes: usize) {
        if self.bytes + bytes > MAX_BATCH_BYTES {
            self.flush();
        }
        self.bytes += bytes - Batch::default().most_bytes();
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = Batch::default().most_bytes();
        if batch != Batch::default() {
            (self.send)(&batch);
        }
    }
}

/// A topic as others know it.
fn full(topic: &Topic, node: &str) -> Option<Topic> {
    match topic.node() == node {
        true => Some(topic.clone()),
        false => Topic::new(&format!("{node}/{topic}")).ok(),
    }
}

/// A row of all columns as a sample.
fn told(index: u32, batch: &RecordBatch, row: usize) -> Told {
    let number = |column: usize| {
        let column = batch.column(column).as_primitive::<Float64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let time = batch.column(0).as_primitive::<TimestampNanosecondType>().value(row);
    let origin = match (batch.column(2).as_primitive::<UInt8Type>().value(row), number(3)) {
        (1, bound) => Origin::Predicted { bound: bound.unwrap_or(f64::NAN) },
        (2, _) => Origin::Unknown,
        _ => Origin::Measured,
    };
    let texts = batch.column(4).as_string::<i32>();
    let text = texts.is_valid(row).then(|| Structured::from_json(texts.value(row)).ok()).flatten();
    let value = match text {
        Some(structured) => Content::Structured(structured),
        None => Content::Bits(number(1).unwrap_or(f64::NAN).to_bits()),
    };
    Told { index, time: Timestamp::from_nanos(time), origin, value }
}

/// Whom to ask what.
pub(super) struct Asks {
    pub(super) nodes: Vec<(String, i64, Question)>,
    /// Who is known not to answer.
    pub(super) missing: Vec<String>,
}

/// What a node is to be asked for.
pub(super) fn question(node: &str, wanted: &Wanted, when: &When) -> Question {
    let start = format!("{node}/");
    let (from, to, only_last) = match when {
        When::During(times) => (*times.start(), *times.end(), false),
        When::AsOf(time) => (Timestamp::default(), *time, true),
    };
    let (mut topics, mut starts) = (Vec::new(), Vec::new());
    match wanted {
        Wanted::All => starts.push(start),
        Wanted::These(all) => {
            let own = all.iter().filter(|topic| topic.node() == node);
            topics.extend(own.map(|topic| topic.as_str().to_owned()));
        }
        Wanted::Starting(all) => starts.extend(all.iter().filter_map(|text| {
            // The longer of the two, if one begins with the other.
            match (start.starts_with(text.as_str()), text.starts_with(&start)) {
                (true, _) => Some(start.clone()),
                (_, true) => Some(text.clone()),
                _ => None,
            }
        })),
    }
    Question { topics, starts, from, to, only_last, most: MOST_SAMPLES }
}

/// Asks them.
pub(super) async fn ask(plane: Plane, asks: Asks, until: Instant) -> Elsewhere {
    let mut elsewhere = Elsewhere { missing: asks.missing, ..Elsewhere::default() };
    for Answered { node, batches } in plane.ask_history(asks.nodes, until).await {
        let part = batches.and_then(|batches| part(&node, batches));
        match part {
            Some(part) => {
                elsewhere.parts.push(Arc::new(part));
                elsewhere.answered.insert(node);
            }
            None => elsewhere.missing.push(node),
        }
    }
    elsewhere
}

/// What a node said as a part; `None` if it says what cannot be.
fn part(node: &str, batches: Vec<Batch>) -> Option<Part> {
    let mut all: BTreeMap<u32, (Series, Samples)> = BTreeMap::new();
    let mut last: BTreeMap<u32, Timestamp> = BTreeMap::new();
    for batch in batches {
        for Description { index, topic, unit, kind, value_type } in batch.described {
            let since = Timestamp::default();
            let series = Series { topic, unit, kind, value_type, since };
            let is_own = series.topic.node() == node;
            if !is_own || all.insert(index, (series, Samples::default())).is_some() {
                return None;
            }
        }
        for Told { index, time, origin, value } in batch.samples {
            let (series, samples) = all.get_mut(&index)?;
            let value = value.value(series.value_type)?;
            // Whoever reads them relies on it.
            if last.insert(index, time).is_some_and(|before| before > time) {
                return None;
            }
            samples.push(&Sample { time, value, origin });
        }
    }
    Part::of_samples(all.into_values().collect()).ok()
}

#[cfg(test)]
mod tests {
    use skopos_model::{Kind, Unit};

    use super::*;

    fn series(topic: &str) -> Series {
        Series {
            topic: Topic::new(topic).expect("a topic"),
            unit: Unit::NONE,
            kind: Kind::Gauge,
            value_type: ValueType::U64,
            since: Timestamp::default(),
        }
    }

    /// What an answer to this question is, of some samples of two series.
    fn answered(question: &Question) -> (Vec<Batch>, bool) {
        let mut samples = Samples::default();
        (0..5000).for_each(|n| samples.push_measured(Timestamp::from_nanos(n * 10), n as f64));
        let all = ["n01/a/b", "app/c"].map(|topic| (series(topic), samples.clone()));
        let part = Part::of_samples(all.into()).expect("a part");
        let mut batches = Vec::new();
        let mut send = |batch: &Batch| batches.push(batch.clone());
        let mut answer = Answer::new("n01", question, &mut send);
        let selection = skopos_store::history::Selection {
            stretches: vec![(0, i64::MAX), (1, i64::MAX)],
            times: i64::MIN..=i64::MAX,
        };
        for chunk in part.read(0, &skopos_store::history::Column::ALL, &selection).expect("rows") {
            let chunk = chunk.expect("a chunk");
            for run in &chunk.runs {
                if !answer.take(&part.stretches()[run.stretch].series, &chunk.batch, run) {
                    break;
                }
            }
        }
        answer.flush();
        let is_whole = answer.is_whole;
        (batches, is_whole)
    }

    #[test]
    fn an_answer_comes_in_short_batches_and_is_what_was_kept() {
        let wanted = Wanted::Starting(vec!["n01/".to_owned()]);
        let question = question("n01", &wanted, &When::AsOf(Timestamp::from_nanos(1)));
        let (batches, is_whole) = answered(&question);
        assert!(is_whole && batches.len() > 2);
        assert!(batches.iter().all(|batch| batch.encode().len() <= MAX_BATCH_BYTES));
        let part = part("n01", batches.clone()).expect("a part");
        let topics: Vec<&str> = part.stretches().iter().map(|s| s.series.topic.as_str()).collect();
        assert_eq!((topics, part.rows()), (vec!["n01/a/b", "n01/app/c"], 10_000));
        assert!(super::part("n02", batches).is_none(), "nobody speaks for others");
        let (batches, is_whole) = answered(&Question { most: 7000, ..question });
        let count: usize = batches.iter().map(|batch| batch.samples.len()).sum();
        assert!(!is_whole && count == 7000);
    }

    #[test]
    fn a_node_is_asked_for_its_own() {
        let asked = |wanted: Wanted| {
            let Question { topics, starts, .. } =
                question("n01", &wanted, &When::AsOf(Timestamp::default()));
            [topics, starts].concat()
        };
        let starting = |texts: &[&str]| {
            Wanted::Starting(texts.iter().map(|text| (*text).to_owned()).collect())
        };
        let these = ["n01/a/b", "n02/a/b"].map(|topic| series(topic).topic);
        assert_eq!(asked(Wanted::All), ["n01/"]);
        assert_eq!(asked(Wanted::These(these.into())), ["n01/a/b"]);
        assert_eq!(asked(starting(&["n0", "n01/mem/", "n02/"])), ["n01/", "n01/mem/"]);
    }
}
