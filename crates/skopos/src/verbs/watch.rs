//! `skopos watch PATTERN`: prints each change, and topics as they appear and disappear.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;
use skopos_model::{Sample, Topic, TopicPattern};
use skopos_shm::{Delivery, Error, Host, SegmentVersions, Subscription, Vertex, now};

use super::watch_args::WatchArgs;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::{no_match, open_host, readings_of};
use skopos_term::format;
use skopos_term::reading::{self, ReadingJson, origin};
use skopos_term::{Out, Style, tell};

/// The longest sleep between two checks for publishers that started or ended.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// One line of `--json`: `docs/json/watch.schema.json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    /// A new sample.
    Change(Box<ReadingJson>),
    /// Samples that were overwritten before this verb read them.
    Lost { topic: String, samples: u64 },
    /// The topic was removed, or its publisher died.
    Gone { topic: String },
}

pub(crate) fn run(global: &Global, args: &WatchArgs) -> Result<ExitCode, Failure> {
    if let Some(sql) = &args.sql {
        return super::watch_sql::run(global, args, sql);
    }
    let mut host = open_host(global)?;
    let mut patterns = Vec::new();
    for text in &args.patterns {
        let mut readings = readings_of(text)?;
        match readings.iter().position(|pattern| !host.select(pattern).is_empty()) {
            Some(first) => readings = vec![readings.swap_remove(first)],
            // A topic without a wildcard that does not exist is a mistake.
            None if !text.contains('*') => return Err(no_match(&host, text)),
            // A pattern waits for its topics, with or without their node.
            None => tell(format!("nothing matches `{text}` yet; waiting")),
        }
        patterns.extend(readings);
    }
    // A time beyond the range of the clock means no end.
    let deadline = args.run_for.and_then(|d| Instant::now().checked_add(d));
    let mut watch = Watch {
        out: Out::new(global.style()),
        left: args.count,
        cursors: BTreeMap::new(),
        versions: SegmentVersions::default(),
        patterns,
    };
    // The present values come first, so that a topic that does not change shows its value.
    watch.look_around(&host, true);
    loop {
        if watch.drain()? {
            return Ok(ExitCode::SUCCESS);
        }
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(ExitCode::SUCCESS);
        }
        let nap = left.unwrap_or(LOOK_AROUND).min(LOOK_AROUND);
        if !host.wait(nap, || watch.has_news(&host)) {
            host.refresh()?;
        }
        watch.look_around(&host, false);
    }
}

struct Watch {
    out: Out,
    left: Option<u64>,
    patterns: Vec<TopicPattern>,
    cursors: BTreeMap<Topic, Subscription>,
    versions: SegmentVersions,
}

impl Watch {
    /// Follows topics that have appeared: from the latest sample on at the start, from their
    /// oldest later, because then they are new.
    fn look_around(&mut self, host: &Host, first: bool) {
        let Some(versions) = host.changes(&self.versions) else { return };
        self.versions = versions;
        for vertex in self.patterns.iter().flat_map(|pattern| host.select(pattern)) {
            self.cursors.entry(vertex.topic().clone()).or_insert_with(|| {
                if first { vertex.subscribe_with_latest() } else { vertex.subscribe_from_oldest() }
            });
        }
    }

    fn has_news(&self, host: &Host) -> bool {
        self.cursors.values().any(Subscription::has_next) || host.changes(&self.versions).is_some()
    }

    /// Prints all new samples. Returns true if the number of `--count` is reached.
    fn drain(&mut self) -> Result<bool, Failure> {
        let mut gone = Vec::new();
        for (topic, cursor) in &mut self.cursors {
            loop {
                if self.left == Some(0) {
                    self.out.flush()?;
                    return Ok(true);
                }
                match cursor.try_next() {
                    Ok(Some(Delivery::Sample(sample))) => {
                        print_change(&mut self.out, cursor.vertex(), &sample)?;
                        self.left = self.left.map(|n| n - 1);
                    }
                    Ok(Some(Delivery::Lost(samples))) => {
                        print_lost(&mut self.out, topic, samples)?;
                    }
                    Ok(None) => {
                        if !cursor.vertex().segment().is_alive() {
                            gone.push(topic.clone());
                        }
                        break;
                    }
                    Err(Error::Gone(_)) => {
                        gone.push(topic.clone());
                        break;
                    }
                    Err(e) => return Err(e.into()),
                }
            }
        }
        for topic in gone {
            self.cursors.remove(&topic);
            // It may be back already as another vertex: search once more.
            self.versions = SegmentVersions::default();
            print_gone(&mut self.out, &topic)?;
        }
        self.out.flush()?;
        Ok(self.left == Some(0))
    }
}

fn print_change(out: &mut Out, vertex: &Vertex, sample: &Sample) -> std::io::Result<()> {
    let unit = vertex.info().unit;
    let (topic, value) = (vertex.topic(), &sample.value);
    match out.style {
        Style::Json => {
            let reading = ReadingJson::new(vertex, sample, sample.time, now().since(sample.time));
            out.json(&Line::Change(Box::new(reading)))
        }
        Style::Plain => out.line(format!(
            "{}\t{topic}\t{value}\t{unit}\t{}",
            sample.time.as_nanos(),
            origin(sample, unit)
        )),
        Style::Human => {
            let time = out.dim(&format::time_of_day(sample.time));
            let value = out.bold(&reading::value(sample, unit));
            out.line(format!("{time}  {topic}  {value}"))
        }
    }
}

fn print_lost(out: &mut Out, topic: &Topic, samples: u64) -> std::io::Result<()> {
    match out.style {
        Style::Json => out.json(&Line::Lost { topic: topic.to_string(), samples }),
        _ => {
            tell(format!("{topic}: {samples} samples were overwritten before they could be shown"));
            Ok(())
        }
    }
}

fn print_gone(out: &mut Out, topic: &Topic) -> std::io::Result<()> {
    match out.style {
        Style::Json => out.json(&Line::Gone { topic: topic.to_string() }),
        _ => {
            tell(format!("{topic}: gone"));
            Ok(())
        }
    }
}
