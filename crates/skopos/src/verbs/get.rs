//! `skopos get TOPIC…`: value, unit, age and origin, once.

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use skopos_shm::{Error, Reading, Vertex, now};

use crate::cli::{GetArgs, Global};
use crate::control::{self, Request};
use crate::duration;
use crate::failure::{EXIT_NO, Failure};
use crate::find::{no_match, open_host, resolve};
use crate::format;
use crate::out::{Out, Style};
use crate::reading::{ReadingJson, origin};

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
    for text in &args.topics {
        let found = resolve(&host, text)?;
        if found.is_empty() {
            return Err(no_match(&host, text));
        }
        for vertex in found {
            if !vertices.iter().any(|v| v.topic() == vertex.topic()) {
                vertices.push(vertex);
            }
        }
    }
    let (mut readings, mut refused) = (Vec::new(), Vec::new());
    for vertex in vertices {
        match read(&vertex, args.max_age) {
            Ok(reading) => readings.push((vertex, reading)),
            Err(reason) => refused.push(Refused { topic: vertex.topic().to_string(), reason }),
        }
    }
    let code = if refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) };
    print(&mut Out::new(global.style()), &readings, refused)?;
    Ok(code)
}

/// The latest reading; one that is older than allowed is refreshed, or refused.
fn read(vertex: &Vertex, max_age: Option<Duration>) -> Result<Reading, String> {
    let latest = || match vertex.latest() {
        Err(Error::Empty(_)) => Err("no value yet".to_owned()),
        other => other.map_err(|e| e.to_string()),
    };
    let reading = latest()?;
    let Some(max_age) = max_age.filter(|max_age| reading.age() > *max_age) else {
        return Ok(reading);
    };
    let topic = vertex.topic().to_string();
    let refreshed = match vertex.segment().path().parent() {
        Some(dir) => control::ask(dir, &Request::Refresh { topic }).is_ok(),
        None => false,
    };
    let reading = latest()?;
    if refreshed || reading.age() <= max_age {
        return Ok(reading);
    }
    Err(format!(
        "last looked at {} ago, longer than --max-age {}",
        duration::human(reading.age()),
        duration::human(max_age)
    ))
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
                        format::value(&r.sample.value, vertex.info().unit),
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
        eprintln!("{topic}: {reason}");
    }
}
