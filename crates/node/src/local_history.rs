//! The past of this machine's topics, in memory and on disk.
//!
//! A sample may be in a ring and on disk: the disk gives only the samples of a topic that are older than the first
//! sample in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use skopos_agent::folder_of;
use skopos_model::{Sample, Timestamp, Topic, unpoisoned};
use skopos_shm::{Host, Segment, Vertex};
use skopos_store::history::{Column, Error, Folder, Found, Part, Run, Samples, Selection, Series};
use skopos_wire::{Content, Extent, IndexedSample};

use crate::answer::Answer;

/// Reads the samples of this machine.
pub(crate) struct LocalHistory(Mutex<State>);

struct State {
    host: Host,
    /// The folders of history of this machine's archivers. A folder stays when its archiver ends.
    folders: BTreeMap<PathBuf, Arc<Folder>>,
}

/// The time of the first sample in memory, by topic.
type Firsts = HashMap<Topic, i64>;

impl LocalHistory {
    pub(crate) fn new(host: Host) -> Self {
        Self(Mutex::new(State { host, folders: BTreeMap::new() }))
    }

    /// Adds the samples of the question to its answer.
    pub(crate) fn show(&self, answer: &mut Answer<'_>) -> Extent {
        let (vertices, folders) = self.look();
        let firsts =
            vertices.iter().filter_map(|vertex| Some((vertex.topic().clone(), first(vertex)?)));
        let firsts: Firsts = firsts.collect();
        let mut answered = BTreeSet::new();
        for vertex in &vertices {
            match add_ring(vertex, answer) {
                Added::Samples => drop(answered.insert(vertex.topic().clone())),
                Added::Nothing => {}
                Added::Full => return Extent::Cut,
            }
        }
        let question = answer.question;
        let oldest = if question.only_last { i64::MIN } else { question.from.as_nanos() };
        let times = Timestamp::from_nanos(oldest)..=question.to;
        let mut extent = Extent::Whole;
        for folder in folders {
            let Ok(Found { parts, damaged }) = folder.find(&times) else { return Extent::Cut };
            let added = match question.only_last {
                true => add_last(&parts, &answered, answer),
                false => add_parts(&parts, &firsts, answer),
            };
            match added {
                Ok(Extent::Whole) if damaged.is_empty() => {}
                Ok(Extent::Whole | Extent::Damaged) => extent = Extent::Damaged,
                Ok(Extent::Cut) | Err(_) => return Extent::Cut,
            }
        }
        extent
    }

    /// Returns the vertices of this machine, each topic once, and the folders of history.
    fn look(&self) -> (Vec<Vertex>, Vec<Arc<Folder>>) {
        let mut state = unpoisoned(self.0.lock());
        // If the directory cannot be listed now, the previous list stays.
        let _ = state.host.refresh();
        let mut vertices: Vec<Vertex> = Vec::new();
        let mut topics = BTreeSet::new();
        for vertex in state.host.segments().iter().flat_map(Segment::vertices) {
            // If several segments have the topic, the oldest segment wins.
            if topics.insert(vertex.topic().clone()) {
                vertices.push(vertex);
            }
        }
        for folder in vertices.iter().filter_map(folder_of) {
            let folder = std::fs::canonicalize(&folder).unwrap_or(folder);
            let open = |path: &PathBuf| Arc::new(Folder::new(path.clone()));
            state.folders.entry(folder).or_insert_with_key(open);
        }
        (vertices, state.folders.values().cloned().collect())
    }
}

/// Returns the time of the first sample in the ring of `vertex`.
fn first(vertex: &Vertex) -> Option<i64> {
    let always = Timestamp::from_nanos(i64::MIN)..=Timestamp::from_nanos(i64::MAX);
    Some(vertex.range(always).ok()?.samples.first()?.time.as_nanos())
}

/// The result of adding a vertex to an answer.
enum Added {
    Samples,
    Nothing,
    /// The answer has the largest number of samples that the question allows.
    Full,
}

/// Adds the samples of a ring.
fn add_ring(vertex: &Vertex, answer: &mut Answer<'_>) -> Added {
    let (info, question) = (vertex.info(), answer.question);
    // A removed vertex has no samples.
    let Ok(range) = vertex.range(question.from..=question.to) else { return Added::Nothing };
    if range.samples.is_empty()
        || !answer.begin(&info.topic, (info.unit, info.kind, info.value_type))
    {
        return Added::Nothing;
    }
    let from = if question.only_last { range.samples.len() - 1 } else { 0 };
    if range.samples[from..].iter().all(|sample| answer.add(indexed(sample))) {
        Added::Samples
    } else {
        Added::Full
    }
}

fn indexed(sample: &Sample) -> IndexedSample {
    let Sample { time, value, origin } = sample;
    IndexedSample { index: 0, time: *time, origin: *origin, value: Content::from(value) }
}

/// Adds the samples of some parts that are older than those in memory.
fn add_parts(
    parts: &[Arc<Part>],
    firsts: &Firsts,
    answer: &mut Answer<'_>,
) -> Result<Extent, Error> {
    let question = answer.question;
    let mut extent = Extent::Whole;
    for part in parts {
        let wanted = part.stretches().iter().enumerate();
        let wanted = wanted.filter(|(_, stretch)| answer.is_wanted(&stretch.series.topic));
        let below = |topic: &Topic| firsts.get(topic).copied().unwrap_or(i64::MAX);
        let stretches = wanted.map(|(at, stretch)| (at, below(&stretch.series.topic))).collect();
        let times = question.from.as_nanos()..=question.to.as_nanos();
        let mut rows = Rows::default();
        match read(part, &Selection { stretches, times }, &mut |series, samples, run| {
            rows.add(series, samples, run, answer)
        })? {
            Extent::Whole => {}
            Extent::Damaged => extent = Extent::Damaged,
            Extent::Cut => return Ok(Extent::Cut),
        }
    }
    Ok(extent)
}

/// Adds the last sample of each topic without a sample in memory.
fn add_last(
    parts: &[Arc<Part>],
    answered: &BTreeSet<Topic>,
    answer: &mut Answer<'_>,
) -> Result<Extent, Error> {
    let to = answer.question.to;
    let mut extent = Extent::Whole;
    // The series of a topic that began last before the time has the last sample.
    let mut last: BTreeMap<&Topic, (Timestamp, &Part, usize)> = BTreeMap::new();
    for part in parts {
        for (at, stretch) in part.stretches().iter().enumerate() {
            let topic = &stretch.series.topic;
            if stretch.first > to || answered.contains(topic) || !answer.is_wanted(topic) {
                continue;
            }
            let found = last.entry(topic).or_insert((stretch.first, part, at));
            if stretch.first > found.0 {
                *found = (stretch.first, part, at);
            }
        }
    }
    for (_, part, at) in last.into_values() {
        let selection =
            Selection { stretches: vec![(at, i64::MAX)], times: i64::MIN..=to.as_nanos() };
        let mut row = None;
        let series = &part.stretches()[at].series;
        let last = &mut |_: &Series, samples: &Samples, run: &Run| {
            row = samples.sample(run.start + run.rows - 1, series.value_type);
            true
        };
        if read(part, &selection, last)? == Extent::Damaged {
            extent = Extent::Damaged;
        }
        let kind = (series.unit, series.kind, series.value_type);
        if let Some(row) = row
            && answer.begin(&series.topic, kind)
            && !answer.add(indexed(&row))
        {
            return Ok(Extent::Cut);
        }
    }
    Ok(extent)
}

/// Passes the selected rows of a part to `visit` until it returns false.
fn read(
    part: &Part,
    selection: &Selection,
    visit: &mut dyn FnMut(&Series, &Samples, &Run) -> bool,
) -> Result<Extent, Error> {
    let mut extent = Extent::Whole;
    for group in (0..part.groups()).filter(|group| part.may_have(*group, selection)) {
        let chunks = match part.read(group, &Column::ALL, selection) {
            Ok(chunks) => chunks,
            // Retention has removed the part meanwhile.
            Err(e) if e.is_gone() => continue,
            Err(e) if e.is_damage() => {
                extent = Extent::Damaged;
                continue;
            }
            Err(e) => return Err(e),
        };
        for chunk in chunks {
            let chunk = match chunk {
                Err(e) if e.is_damage() => {
                    extent = Extent::Damaged;
                    break;
                }
                chunk => chunk?,
            };
            for run in &chunk.runs {
                if !visit(&part.stretches()[run.stretch].series, &chunk.samples, run) {
                    return Ok(Extent::Cut);
                }
            }
        }
    }
    Ok(extent)
}

/// Rows of a part on their way into an answer.
#[derive(Default)]
struct Rows {
    /// The series of the previous row.
    last: Option<Series>,
}

impl Rows {
    /// Adds rows of a chunk. Returns false if the answer is full.
    fn add(
        &mut self,
        series: &Series,
        samples: &Samples,
        run: &Run,
        answer: &mut Answer<'_>,
    ) -> bool {
        if self.last.as_ref() != Some(series) {
            if !answer.begin(&series.topic, (series.unit, series.kind, series.value_type)) {
                return true;
            }
            self.last = Some(series.clone());
        }
        let mut rows = (run.start..run.start + run.rows)
            .filter_map(|row| samples.sample(row, series.value_type));
        rows.all(|sample| answer.add(indexed(&sample)))
    }
}

#[cfg(test)]
mod tests {
    use skopos_model::{Sample, ValueType};
    use skopos_shm::{Publisher, VertexSpec};
    use skopos_store::history::{Keeper, PushOutcome};
    use skopos_wire::{Batch, Question};

    use super::*;

    fn ask(starts: &str, times: (i64, i64), only_last: bool, most: u64) -> Question {
        let at = Timestamp::from_nanos;
        let (from, to, starts) = (at(times.0), at(times.1), vec![starts.to_owned()]);
        Question { topics: Vec::new(), starts, from, to, only_last, most }
    }

    #[test]
    fn memory_answers_and_a_full_answer_is_not_complete() {
        let dir = tempfile::tempdir().expect("a folder");
        let publisher = Publisher::builder("app").dir(dir.path()).node("n01").create();
        let publisher = publisher.expect("a segment");
        let topic = Topic::new("n01/app/depth").expect("a topic");
        let spec = VertexSpec::new(topic, ValueType::U64).slots(8);
        let writer = publisher.register(spec).expect("a vertex");
        for n in 1..=20 {
            writer.publish_at(Timestamp::from_nanos(n), n as u64).expect("published");
        }
        let host = || Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
        let answer = |question: &Question| {
            let mut values = Vec::new();
            let mut send = |batch: &Batch| {
                values.extend(batch.samples.iter().map(|sample| sample.time.as_nanos()));
            };
            let mut answer = Answer::new("n01", question, &mut send);
            let extent = LocalHistory::new(host()).show(&mut answer);
            let is_whole = answer.end() && extent == Extent::Whole;
            (values, is_whole)
        };
        assert_eq!(answer(&ask("n01/", (15, 17), false, 100)), (vec![15, 16, 17], true));
        assert_eq!(answer(&ask("n01/mem", (15, 17), false, 100)), (vec![], true));
        assert_eq!(answer(&ask("n01/", (15, 17), false, 2)), (vec![15, 16], false), "too many");
        assert_eq!(answer(&ask("n01/app/", (0, 18), true, 100)), (vec![18], true));
        let (all, is_whole) = answer(&ask("n01/", (1, 20), false, 100));
        assert!(all.len() < 20 && is_whole, "overwritten samples do not count");
    }

    /// Writes samples of `topic` at these times into a folder of history, as one part.
    fn keep(folder: &std::path::Path, topic: &Topic, times: std::ops::RangeInclusive<i64>) {
        let limits = skopos_store::history::Limits::default();
        let now = Timestamp::from_nanos(1);
        let mut keeper = Keeper::open(folder, limits, now).expect("a keeper");
        let series = Series {
            topic: topic.clone(),
            unit: skopos_model::Unit::NONE,
            kind: skopos_model::Kind::Gauge,
            value_type: ValueType::U64,
            since: now,
        };
        let id = keeper.attach(vec![series], false).expect("attached")[0];
        for n in times {
            let sample =
                Sample::measured(Timestamp::from_nanos(n), skopos_model::Value::U64(n as u64));
            assert!(matches!(keeper.push(id, &sample), PushOutcome::Accepted));
        }
        keeper.rotate_now(now).expect("rotated");
        keeper.chores().run(now).expect("sealed");
    }

    #[test]
    fn the_disk_gives_samples_that_are_older_than_memory() {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = dir.path().join("kept");
        std::fs::create_dir(&kept).expect("a folder");
        let topic = Topic::new("n01/app/depth").expect("a topic");
        let publisher = Publisher::builder("app").dir(dir.path()).node("n01").create();
        let publisher = publisher.expect("a segment");
        let spec = VertexSpec::new(topic.clone(), ValueType::U64).slots(8);
        let writer = publisher.register(spec).expect("a vertex");
        for n in 1..=20 {
            writer.publish_at(Timestamp::from_nanos(n), n as u64).expect("published");
        }
        keep(&kept, &topic, 1..=20);
        let history = Publisher::builder(skopos_agent::HISTORY_NAME).dir(dir.path()).node("n01");
        let history = history.create().expect("a segment");
        let metric = &skopos_model::schema::self_history::FOLDER;
        let named =
            format!("n01/{}/{}", skopos_model::schema::self_history::FAMILY.path, metric.name);
        let spec = VertexSpec::new(Topic::new(&named).expect("a topic"), metric.value_type);
        let folder = history.register(spec).expect("a vertex");
        let text = skopos_model::Structured::text(&kept.to_string_lossy());
        folder.publish_sample(&Sample::measured(skopos_shm::now(), text)).expect("published");
        let answer = |question: &Question| {
            let mut times = Vec::new();
            let mut send = |batch: &Batch| {
                times.extend(batch.samples.iter().map(|sample| sample.time.as_nanos()));
            };
            let mut answer = Answer::new("n01", question, &mut send);
            let host = Host::open_dirs(vec![dir.path().to_path_buf()]).expect("a host");
            let extent = LocalHistory::new(host).show(&mut answer);
            assert!(answer.end());
            assert_eq!(extent, Extent::Whole);
            times.sort_unstable();
            times
        };
        let all: Vec<i64> = (1..=20).collect();
        assert_eq!(answer(&ask("n01/app/", (1, 20), false, 100)), all);
        assert_eq!(answer(&ask("n01/app/", (5, 16), false, 100)), all[4..16]);
        assert_eq!(answer(&ask("n01/app/", (0, 18), true, 100)), [18], "memory has it");
        assert_eq!(answer(&ask("n01/app/", (0, 3), true, 100)), [3], "only the disk has it");
    }
}
