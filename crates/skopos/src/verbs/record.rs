//! `skopos record TOPIC…`: records live topics into trace files, which can be replayed.
//!
//! A row is written if the source was polled since the previous row. A trace therefore has gaps where the
//! values were not known. Each row is one write, so a file is complete up to its last line, no matter how
//! the recording ends.

use clap::Args;
use skopos_model::duration;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use skopos_model::{Origin, Timestamp, Topic};
use skopos_score::trace::Trace;
use skopos_shm::{Host, Reading, Vertex, now};

use skopos_agent::Signals;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::find::{no_match, open_host, resolve};
use skopos_term::{Out, Style, tell};

/// The most topics of one recording: each is an open file, and a process may have 1,024.
const MAX_RECORDED: usize = 800;

/// Reads in an interval: a row is late by at most this part of the interval.
const LOOKS: u32 = 8;

/// Time between two searches for topics that are gone.
const LOOK_AROUND: Duration = Duration::from_millis(500);

/// `docs/json/record.schema.json`.
#[derive(Serialize)]
struct Recorded<'a> {
    recorded: Vec<FileJson<'a>>,
}

#[derive(Serialize)]
struct FileJson<'a> {
    topic: &'a str,
    file: String,
    rows: u64,
    /// Intervals without a row, because nobody had looked at the source.
    missed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Topics or patterns; the node may be left out
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Stop after this time [default: at Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) run_for: Option<Duration>,
    /// Time between two rows
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) interval: Duration,
    /// Directory of the files, one for each topic
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Note for the head of each file, such as the workload; can be repeated
    #[arg(long, value_name = "TEXT", value_parser = one_line)]
    pub(crate) note: Vec<String>,
}

/// Refuses a note of several lines, which would end among the rows.
fn one_line(text: &str) -> Result<String, String> {
    match text.contains(['\n', '\r']) {
        false => Ok(text.to_owned()),
        true => Err("a note is one line; give --note more than once".to_owned()),
    }
}

pub(crate) fn run(global: &Global, args: &RecordArgs) -> Result<ExitCode, Failure> {
    if args.interval.is_zero() {
        return Err(Failure::new("an interval of 0 is not possible")
            .hint("name one, such as `--interval 1s`"));
    }
    let mut host = open_host(global)?;
    let vertices = selected(&host, &args.topics)?;
    // From here on Ctrl-C ends the recording in order, like `--for`.
    let signals = Signals::catch()?;
    let start = now();
    let comments = Comments { start, interval: args.interval, notes: &args.note };
    let mut tracks = Vec::with_capacity(vertices.len());
    for vertex in vertices {
        tracks.push(Track::create(vertex, &args.out, &comments)?);
    }
    let end = args.run_for.and_then(|run_for| Instant::now().checked_add(run_for));
    let result = record(&mut host, &mut tracks, &signals, &comments, end);
    let intervals = now().since(start).as_nanos() / args.interval.as_nanos();
    report(&mut Out::new(global.style()), &tracks, u64::try_from(intervals).unwrap_or(u64::MAX))?;
    result.map(|()| ExitCode::SUCCESS)
}

/// Selects the vertices of the patterns, each topic once, and only numbers.
fn selected(host: &Host, texts: &[String]) -> Result<Vec<Vertex>, Failure> {
    let mut vertices: Vec<Vertex> = Vec::new();
    for text in texts {
        let mut found = resolve(host, text)?;
        if found.is_empty() {
            return Err(no_match(host, text));
        }
        found.retain(|vertex| vertex.info().value_type != skopos_model::ValueType::Structured);
        if found.is_empty() {
            return Err(Failure::new(format!(
                "`{text}` has no number, and a trace contains numbers only"
            ))
            .hint("`skopos watch` follows lists and records"));
        }
        found.retain(|vertex| !vertices.iter().any(|known| known.topic() == vertex.topic()));
        vertices.append(&mut found);
    }
    if vertices.len() > MAX_RECORDED {
        let count = vertices.len();
        return Err(Failure::new(format!("{count} topics; at most {MAX_RECORDED} at once"))
            .hint("name fewer of them; `skopos ls PATTERN` shows what a pattern selects"));
    }
    Ok(vertices)
}

/// Records until the time is over, a signal comes or a file cannot be written.
fn record(
    host: &mut Host,
    tracks: &mut [Track],
    signals: &Signals,
    comments: &Comments<'_>,
    end: Option<Instant>,
) -> Result<(), Failure> {
    let nap = (comments.interval / LOOKS).max(Duration::from_millis(1));
    let mut looked_around = Instant::now();
    loop {
        for track in tracks.iter_mut() {
            track.look(comments)?;
        }
        if looked_around.elapsed() >= LOOK_AROUND && tracks.iter().any(|t| t.vertex.is_none()) {
            looked_around = Instant::now();
            host.refresh()?;
            for track in tracks.iter_mut().filter(|track| track.vertex.is_none()) {
                track.vertex = host.find(&track.topic).ok();
            }
        }
        let left = end.map_or(nap, |end| end.saturating_duration_since(Instant::now()).min(nap));
        if left.is_zero() || signalled(signals, left)? {
            return Ok(());
        }
    }
}

/// Sleeps. Returns true if a signal ended the sleep.
fn signalled(signals: &Signals, nap: Duration) -> Result<bool, Failure> {
    let timeout = Timespec::try_from(nap).map_err(io::Error::other)?;
    let descriptor = signals.descriptor();
    match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(Failure::new("cannot wait").because(&io::Error::from(e))),
    }
}

/// The comments above the rows of every file.
struct Comments<'a> {
    start: Timestamp,
    interval: Duration,
    notes: &'a [String],
}

/// A topic and its file.
struct Track {
    topic: Topic,
    /// `None` while the topic is not published.
    vertex: Option<Vertex>,
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    rows: u64,
    /// Time of the poll of the last row.
    last: Option<Timestamp>,
    /// Earliest poll time of the next row.
    due: Timestamp,
}

impl Track {
    /// Creates the file with its comments and head. The file must not exist.
    fn create(vertex: Vertex, dir: &Path, comments: &Comments<'_>) -> Result<Self, Failure> {
        let topic = vertex.topic().clone();
        // `/` is the only character of a topic that has a meaning in a path.
        let path = dir.join(format!("{}.csv", topic.as_str().replace('/', "~")));
        std::fs::create_dir_all(dir).map_err(|e| cannot_write(dir, &e))?;
        let file = match File::create_new(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Failure::new(format!("{} exists", path.display()))
                    .hint("name another directory with --out; nothing is overwritten"));
            }
            Err(e) => return Err(cannot_write(&path, &e)),
        };
        let mut notes =
            vec![format!("recorded: {}, every {:?}", comments.start, comments.interval)];
        notes.extend(comments.notes.iter().cloned());
        let unit = vertex.info().unit.to_string();
        let head = Trace { topic: topic.to_string(), unit, notes, samples: Vec::new() };
        let (vertex, due) = (Some(vertex), comments.start);
        let mut track = Self { topic, vertex, path, file, length: 0, rows: 0, last: None, due };
        track.append(&head.to_string())?;
        Ok(track)
    }

    /// Writes a row if a row is due and the source was polled.
    fn look(&mut self, comments: &Comments<'_>) -> Result<(), Failure> {
        let Some(vertex) = &self.vertex else { return Ok(()) };
        let latest = vertex.latest();
        let gone = matches!(latest, Err(skopos_shm::Error::Gone(_)));
        if gone || !vertex.segment().is_alive() {
            tell(format!("{}: gone; its trace continues when it returns", self.topic));
            self.vertex = None;
            return Ok(());
        }
        // A trace contains the values at the base rate, not those that a policy left.
        vertex.follow();
        let Ok(Reading { sample, checked_at, .. }) = latest else { return Ok(()) };
        let value = sample.value.as_f64().filter(|value| value.is_finite());
        let is_new = checked_at >= self.due && self.last.is_none_or(|last| checked_at > last);
        let Some(value) = value.filter(|_| is_new && sample.origin == Origin::Measured) else {
            return Ok(());
        };
        let time = checked_at.since(comments.start);
        // Milliseconds: sensors are not timed more exactly, and people read the files, too.
        self.append(&format!("{},{value}\n", (time.as_secs_f64() * 1e3).round() / 1e3))?;
        self.rows += 1;
        self.last = Some(checked_at);
        self.due = next_turn(comments.start, comments.interval, checked_at);
        Ok(())
    }

    /// Appends whole lines; if that fails, the file stays unchanged.
    fn append(&mut self, lines: &str) -> Result<(), Failure> {
        if let Err(e) = self.file.write_all(lines.as_bytes()) {
            let _ = self.file.set_len(self.length);
            return Err(cannot_write(&self.path, &e).hint(
                "the rows up to now are complete; name a directory with more space with `--out`",
            ));
        }
        self.length += lines.len() as u64;
        Ok(())
    }
}

/// The earliest poll time of the row after that of `checked_at`: rows fall on whole multiples of the interval,
/// and a publisher may be a little early.
fn next_turn(start: Timestamp, interval: Duration, checked_at: Timestamp) -> Timestamp {
    let early = interval / LOOKS;
    let turn = (checked_at.since(start) + early).as_nanos() / interval.as_nanos() + 1;
    let until = interval.saturating_mul(u32::try_from(turn).unwrap_or(u32::MAX));
    start.saturating_add(until.saturating_sub(early))
}

fn cannot_write(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot write {}", path.display())).because(e)
}

fn report(out: &mut Out, tracks: &[Track], intervals: u64) -> Result<(), Failure> {
    let json =
        |track: &Track| (track.path.display().to_string(), intervals.saturating_sub(track.rows));
    match out.style {
        Style::Json => {
            let file_json = |track| {
                let (file, missed) = json(track);
                FileJson { topic: track.topic.as_str(), file, rows: track.rows, missed }
            };
            out.json(&Recorded { recorded: tracks.iter().map(file_json).collect() })?;
        }
        Style::Plain => {
            for track in tracks {
                let (file, missed) = json(track);
                out.line(format!("{}\t{file}\t{}\t{missed}", track.topic, track.rows))?;
            }
        }
        Style::Human => {
            let mut rows = vec![["topic", "rows", "missed", "file"].map(str::to_owned).to_vec()];
            for track in tracks {
                let (file, missed) = json(track);
                let counts = [track.rows.to_string(), missed.to_string(), file];
                rows.push(std::iter::once(track.topic.to_string()).chain(counts).collect());
            }
            out.table(&rows, &[1, 2])?;
        }
    }
    Ok(out.flush()?)
}
