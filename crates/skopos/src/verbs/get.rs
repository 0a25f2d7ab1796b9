//! `skopos get TOPIC…`: value, unit, age and origin, once.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_model::duration;
use skopos_shm::{Error, Reading, Vertex, now};

use crate::agent::{MIN_REFRESH, MIRROR_NAME, SEGMENT_NAME};
use crate::cli::{GetArgs, Global};
use crate::control::{self, Request};
use crate::failure::{EXIT_NO, Failure};
use crate::find::{open_host, resolve_all};
use crate::out::{Out, Style, tell};
use crate::predicted::{self, Now};
use crate::reading::{ReadingJson, origin, value};

/// `docs/json/get.schema.json`.
#[derive(Serialize)]
struct Readings {
    readings: Vec<ReadingJson>,
    /// Topics without a value that may be shown, each with its reason.
    refused: Vec<Refused>,
}

#[derive(Serialize)]
struct Refused {
    topic: String,
    reason: String,
}

pub(crate) fn run(global: &Global, args: &GetArgs) -> Result<ExitCode, Failure> {
    let host = open_host(global)?;
    let (vertices, missing) = resolve_all(&host, &args.topics)?;
    let mut reader = Reader { max_age: args.max_age, unreachable: None, refused: None };
    let (mut readings, mut refused) = (Vec::new(), Vec::new());
    for vertex in vertices {
        match reader.read(&vertex) {
            Ok(reading) => {
                let now = args.now.then(|| predicted::now(&vertex, &reading));
                readings.push(Read { vertex, reading, now });
            }
            Err(reason) => refused.push(Refused { topic: vertex.topic().to_string(), reason }),
        }
    }
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) };
    print(&mut Out::new(global.style()), &readings, refused)?;
    match missing {
        None => Ok(code),
        Some(missing) => Err(missing),
    }
}

/// One topic, read.
struct Read {
    vertex: Vertex,
    reading: Reading,
    /// What it is now, if that was asked.
    now: Option<Now>,
}

/// Reads vertices, and has old values refreshed.
struct Reader {
    max_age: Option<Duration>,
    /// Why the agent could not be asked: it is not asked again for the next topic.
    unreachable: Option<String>,
    /// Why it did not do it for this topic.
    refused: Option<String>,
}

impl Reader {
    /// The latest reading; one that is older than allowed is refreshed, or refused.
    fn read(&mut self, vertex: &Vertex) -> Result<Reading, String> {
        let latest = || match vertex.latest() {
            Err(Error::Empty(_)) => Err("no value yet".to_owned()),
            other => other.map_err(|e| e.to_string()),
        };
        let reading = latest()?;
        let Some(max_age) = self.max_age.filter(|max_age| reading.age() > *max_age) else {
            return Ok(reading);
        };
        let was_refreshed = self.refresh(vertex);
        let reading = latest()?;
        // The agent polls nothing twice within a moment, so a refreshed value may be that old.
        let allowed = if was_refreshed { max_age.max(MIN_REFRESH) } else { max_age };
        if reading.age() <= allowed {
            return Ok(reading);
        }
        let (age, allowed) = (duration::human(reading.age()), duration::human(max_age));
        let because = self.refused.take().or_else(|| self.unreachable.clone());
        let because = because.map(|why| format!("; {why}")).unwrap_or_default();
        Err(format!("last looked at {age} ago, longer than --max-age {allowed}{because}"))
    }

    /// Has the vertex's sensor polled. False if it has none, or nobody answers.
    fn refresh(&mut self, vertex: &Vertex) -> bool {
        let dir = vertex.segment().path().parent();
        // The agent of this machine asks that of another one for what it mirrors.
        let is_agents = [SEGMENT_NAME, MIRROR_NAME].contains(&vertex.segment().name());
        let Some(dir) = dir.filter(|_| is_agents && self.unreachable.is_none()) else {
            return false;
        };
        let topic = vertex.topic().to_string();
        match control::ask(dir, &Request::Refresh { topic }) {
            Ok(_) => true,
            // For this topic alone, for example because a user published it.
            Err(e) if e.is_refusal() => {
                self.refused = Some(e.message().to_owned());
                false
            }
            Err(e) => {
                self.unreachable = Some(e.message().to_owned());
                false
            }
        }
    }
}

fn print(out: &mut Out, reads: &[Read], refused: Vec<Refused>) -> Result<(), Failure> {
    match out.style {
        Style::Json => {
            let time = now();
            let json = |Read { vertex, reading, now }: &Read| {
                ReadingJson::new(vertex, &reading.sample, reading.checked_at, time)
                    .with_now(now.as_ref())
            };
            out.json(&Readings { readings: reads.iter().map(json).collect(), refused })?;
        }
        Style::Plain => {
            for read in reads {
                out.line(plain(read))?;
            }
            complain(&refused);
        }
        Style::Human => {
            let rows: Vec<Vec<String>> = reads.iter().map(human).collect();
            out.table(&rows, &[1, 2])?;
            complain(&refused);
        }
    }
    out.flush()?;
    Ok(())
}

/// Topic, value, unit, age, origin; with `--now` the value now and its origin.
fn plain(Read { vertex, reading, now }: &Read) -> String {
    let (topic, unit) = (vertex.topic(), vertex.info().unit);
    let (value, age) = (&reading.sample.value, reading.age().as_secs_f64());
    let line = format!("{topic}\t{value}\t{unit}\t{age:.6}\t{}", origin(&reading.sample, vertex));
    match now {
        None => line,
        Some(Ok(said)) => format!("{line}\t{}\t{}", said.value, origin(said, vertex)),
        Some(Err(reason)) => format!("{line}\t\t{reason}"),
    }
}

fn human(Read { vertex, reading, now }: &Read) -> Vec<String> {
    let unit = vertex.info().unit;
    let mut row = vec![
        vertex.topic().to_string(),
        value(&reading.sample, unit),
        format!("{} ago", duration::human(reading.age())),
        origin(&reading.sample, vertex),
    ];
    match now {
        None => {}
        Some(Ok(said)) => row.push(format!("now {} {}", value(said, unit), origin(said, vertex))),
        Some(Err(reason)) => row.push(format!("now unknown: {reason}")),
    }
    row
}

fn complain(refused: &[Refused]) {
    for Refused { topic, reason } in refused {
        tell(format!("{topic}: {reason}"));
    }
}
