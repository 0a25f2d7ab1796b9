//! `skopos get TOPIC…`: value, unit, age and origin, once.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_model::duration;
use skopos_shm::{Error, Reading, Vertex, now};

use crate::agent::{MIN_REFRESH, SEGMENT_NAME};
use crate::cli::{GetArgs, Global};
use crate::control::{self, Request};
use crate::failure::{EXIT_NO, Failure};
use crate::find::{no_match, open_host, resolve};
use crate::out::{Out, Style, tell};
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
    let mut vertices: Vec<Vertex> = Vec::new();
    let mut missing = None;
    for text in &args.topics {
        let found = resolve(&host, text)?;
        if found.is_empty() {
            missing.get_or_insert_with(|| no_match(&host, text));
        }
        for vertex in found {
            if !vertices.iter().any(|v| v.topic() == vertex.topic()) {
                vertices.push(vertex);
            }
        }
    }
    let mut reader = Reader { max_age: args.max_age, unreachable: None };
    let (mut readings, mut refused) = (Vec::new(), Vec::new());
    for vertex in vertices {
        match reader.read(&vertex) {
            Ok(reading) => readings.push((vertex, reading)),
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

/// Reads vertices, and has old values refreshed.
struct Reader {
    max_age: Option<Duration>,
    /// Why the agent could not be asked: it is not asked again for the next topic.
    unreachable: Option<String>,
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
        let because = self.unreachable.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
        Err(format!("last looked at {age} ago, longer than --max-age {allowed}{because}"))
    }

    /// Has the vertex's sensor polled. False if it has none, or nobody answers.
    fn refresh(&mut self, vertex: &Vertex) -> bool {
        let dir = vertex.segment().path().parent();
        let is_agents = vertex.segment().name() == SEGMENT_NAME;
        let Some(dir) = dir.filter(|_| is_agents && self.unreachable.is_none()) else {
            return false;
        };
        let topic = vertex.topic().to_string();
        match control::ask(dir, &Request::Refresh { topic }) {
            Ok(_) => true,
            // For this topic alone, for example because a user published it.
            Err(e) if e.is_refusal() => false,
            Err(e) => {
                self.unreachable = Some(e.message().to_owned());
                false
            }
        }
    }
}

fn print(
    out: &mut Out,
    readings: &[(Vertex, Reading)],
    refused: Vec<Refused>,
) -> Result<(), Failure> {
    match out.style {
        Style::Json => {
            let now = now();
            let readings = readings
                .iter()
                .map(|(vertex, r)| ReadingJson::new(vertex, &r.sample, r.checked_at, now))
                .collect();
            out.json(&Readings { readings, refused })?;
        }
        Style::Plain => {
            for (vertex, r) in readings {
                let (topic, unit) = (vertex.topic(), vertex.info().unit);
                let age = r.age().as_secs_f64();
                out.line(format!(
                    "{topic}\t{}\t{unit}\t{age:.6}\t{}",
                    r.sample.value,
                    origin(&r.sample, vertex)
                ))?;
            }
            complain(&refused);
        }
        Style::Human => {
            let rows: Vec<Vec<String>> = readings
                .iter()
                .map(|(vertex, r)| {
                    vec![
                        vertex.topic().to_string(),
                        value(&r.sample, vertex.info().unit),
                        format!("{} ago", duration::human(r.age())),
                        origin(&r.sample, vertex),
                    ]
                })
                .collect();
            out.table(&rows, &[1, 2])?;
            complain(&refused);
        }
    }
    out.flush()?;
    Ok(())
}

fn complain(refused: &[Refused]) {
    for Refused { topic, reason } in refused {
        tell(format!("{topic}: {reason}"));
    }
}
