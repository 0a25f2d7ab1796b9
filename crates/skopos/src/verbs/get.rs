//! `skopos get TOPIC…`: value, unit, age and origin, once.

use clap::Args;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_model::{TopicPattern, duration};
use skopos_shm::{Error, Host, Vertex};

use crate::verbs::lookup::{Document, Lookup, Read, RefusedTopic};
use crate::verbs::predicted;
use skopos_agent::fresh::{Freshness, MaxAge, Refusal, by_agent};
use skopos_agent::{MIRROR_NAME, SEGMENT_NAME};
use skopos_term::Global;
use skopos_term::find::{no_match, open_host, resolve_all};
use skopos_term::reading::{ReadingJson, origin, value};
use skopos_term::{EXIT_NO, Failure};
use skopos_term::{Out, Style, tell};

/// `docs/json/get.schema.json`.
#[derive(Serialize)]
struct Readings<'a> {
    readings: Vec<&'a Document>,
    refused: &'a [RefusedTopic],
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Topics or patterns; the node may be left out. Topics of other nodes come from the hub of this machine
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Refuse a value whose source was last polled longer ago; poll it first if possible (at most ten
    /// times a second)
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) max_age: Option<Duration>,
    /// Print also the present value of each topic, predicted from its samples, with an error bound
    #[arg(long)]
    pub(crate) now: bool,
}

pub(crate) fn run(global: &Global, args: &GetArgs) -> Result<ExitCode, Failure> {
    let (found, missing) = match open_host(global) {
        // A hub may run on a machine that publishes nothing.
        Err(nothing) => (ask_hub(global, &args.topics, args, nothing)?, None),
        Ok(host) => {
            let (vertices, missing) = resolve_all(&host, &args.topics)?;
            let mut found = read(&vertices, args);
            let failure = missing.first().and_then(|text| {
                let why = no_match_here(&host, text);
                let more = ask_hub(global, &missing, args, why).map(|more| {
                    found.reads.extend(more.reads);
                    found.refused.extend(more.refused);
                });
                more.err()
            });
            (found, failure)
        }
    };
    let code = if found.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) };
    print(&mut Out::new(global.style()), &found)?;
    match missing {
        None => Ok(code),
        Some(missing) => Err(missing),
    }
}

/// Asks the hub of this machine for topics that are not in its memory. Without a hub, `without` is the failure.
fn ask_hub(
    global: &Global,
    topics: &[String],
    args: &GetArgs,
    without: Failure,
) -> Result<Lookup, Failure> {
    super::get_hub::ask(global, topics, (args.max_age, args.now), without)
}

/// "No topic matches", with a reason if the topic may be that of another node.
fn no_match_here(host: &Host, text: &str) -> Failure {
    let below = text.split_once('/').map(|(_, below)| TopicPattern::new(&format!("*/{below}")));
    match below {
        Some(Ok(pattern)) if !host.select(&pattern).is_empty() => {
            let hint = format!(
                "topics of other nodes need a hub here, or an agent with `--live --mirror '{text}'`"
            );
            Failure::no(format!("no topic matches `{text}`")).hint(hint)
        }
        _ => no_match(host, text),
    }
}

/// Reads vertices; asks for a poll of values that are too old.
fn read(vertices: &[Vertex], args: &GetArgs) -> Lookup {
    let mut max_age = args.max_age.map(|most| MaxAge::new(most, "--max-age"));
    let mut found = Lookup::default();
    for vertex in vertices {
        let look = || match vertex.latest() {
            Err(Error::Empty(_)) => Err("no value yet".to_owned()),
            Err(e) => Err(e.to_string()),
            Ok(reading) => {
                let looked = Freshness { age: reading.age(), checked_at: reading.checked_at };
                Ok((reading, looked))
            }
        };
        let reading = match &mut max_age {
            None => look().map(|(reading, _)| reading),
            Some(max_age) => {
                let dir = vertex.segment().path().parent().unwrap_or(Path::new(""));
                max_age.read(&dir.to_string_lossy(), look, || measure(vertex, dir))
            }
        };
        let topic = vertex.topic().clone();
        match reading {
            Err(reason) => found.refused.push(RefusedTopic { topic: topic.to_string(), reason }),
            Ok(reading) => {
                let at_now = args.now.then(|| predicted::now(vertex, &reading));
                let json =
                    ReadingJson::new(vertex, &reading.sample, reading.checked_at, reading.age());
                let document = Document::Own(Box::new(json.with_now(at_now.as_ref())));
                let (age, unit) = (reading.age(), vertex.info().unit);
                let sample = reading.sample;
                found.reads.push(Read { topic, unit, sample, age, now: at_now, document });
            }
        }
    }
    found
}

/// Asks the agent beside a vertex to poll its source. For a mirrored vertex that agent asks the other node.
fn measure(vertex: &Vertex, dir: &Path) -> Result<(), Refusal> {
    match vertex.segment().name() {
        SEGMENT_NAME | MIRROR_NAME => by_agent(dir, vertex.topic()),
        _ => Err(Refusal::Topic("no agent measures what other programs publish".to_owned())),
    }
}

fn print(out: &mut Out, Lookup { reads, refused }: &Lookup) -> Result<(), Failure> {
    match out.style {
        Style::Json => {
            let readings = reads.iter().map(|read| &read.document).collect();
            out.json(&Readings { readings, refused })?;
        }
        Style::Plain => {
            for read in reads {
                out.line(plain(read))?;
            }
            complain(refused);
        }
        Style::Human => {
            let rows: Vec<Vec<String>> = reads.iter().map(human).collect();
            out.table(&rows, &[1, 2])?;
            complain(refused);
        }
    }
    out.flush()?;
    Ok(())
}

/// Topic, value, unit, age, origin; with `--now` the value now and its origin.
fn plain(Read { topic, unit, sample, age, now, .. }: &Read) -> String {
    let (value, age) = (&sample.value, age.as_secs_f64());
    let line = format!("{topic}\t{value}\t{unit}\t{age:.6}\t{}", origin(sample, *unit));
    match now {
        None => line,
        Some(Ok(said)) => format!("{line}\t{}\t{}", said.value, origin(said, *unit)),
        Some(Err(reason)) => format!("{line}\t\t{reason}"),
    }
}

fn human(Read { topic, unit, sample, age, now, .. }: &Read) -> Vec<String> {
    let mut row = vec![
        topic.to_string(),
        value(sample, *unit),
        format!("{} ago", duration::human(*age)),
        origin(sample, *unit),
    ];
    match now {
        None => {}
        Some(Ok(said)) => {
            row.push(format!("now {} {}", value(said, *unit), origin(said, *unit)));
        }
        Some(Err(reason)) => row.push(format!("now unknown: {reason}")),
    }
    row
}

fn complain(refused: &[RefusedTopic]) {
    for RefusedTopic { topic, reason } in refused {
        tell(format!("{topic}: {reason}"));
    }
}
