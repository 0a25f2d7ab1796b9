//! Reports of other tools, read as if Skopos had written them, so that an archive may begin with what
//! a site has.
//!
//! What a tool does not tell stays unknown, with the reason; what it is known to tell wrongly is said
//! at the number, or left out. A file is outside bytes: no text of any length makes this fail
//! otherwise than with an [`ImportError`].

pub mod kickstart;
pub mod resource_monitor;
mod xml;
mod yaml;

use std::collections::BTreeMap;

use skopos_model::task::{
    Completeness, Ended, ExitType, Host, Identity, MechanismUse, Overhead, RESOURCES, Reading,
    SUMMARY_VERSION, Summary, resource,
};

/// The most processes that a report lists, as in reports of our own.
const MAX_LISTED: usize = 1000;

/// Why a text is no report.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It is not JSON, or ends in the middle.
    #[error("it is no JSON")]
    Json(#[source] serde_json::Error),
    /// There is no report in it.
    #[error("there is no report of {0} in it")]
    Empty(&'static str),
    /// A report without what every report has.
    #[error("report {report}: `{field}` is missing or makes no sense")]
    Field {
        /// Which report of the file, from 1 on.
        report: usize,
        /// The tool's name of the field.
        field: &'static str,
    },
    /// A report that ends in the middle.
    #[error("report {0} is cut off")]
    Truncated(usize),
}

/// Reads reports of whichever tool wrote them: `resource_monitor` (JSON) or Kickstart (YAML or XML).
///
/// # Errors
/// What is wrong with the first report that is wrong.
pub fn import(text: &str) -> Result<Vec<Summary>, ImportError> {
    match text.trim_start().chars().next() {
        Some('{' | '[') => resource_monitor::import(text),
        _ => kickstart::import(text),
    }
}

/// What a tool's report becomes.
struct Imported {
    task: Identity,
    host: Host,
    start_seconds: f64,
    end_seconds: f64,
    ended: Ended,
    readings: Readings,
    /// The mechanism's name and what is said of it.
    tool: (&'static str, &'static str),
}

impl Imported {
    /// The summary; what has no reading is unknown because of `unknown`.
    fn summary(self, unknown: &str) -> Summary {
        let mut found = self.readings.0;
        let resources = RESOURCES.iter().map(|r| {
            let reading = found.remove(r.name);
            (r.name.to_owned(), reading.unwrap_or_else(|| Reading::unknown(r.unit, unknown)))
        });
        Summary {
            version: SUMMARY_VERSION,
            task: self.task,
            host: self.host,
            start_seconds: self.start_seconds,
            end_seconds: self.end_seconds,
            ended: self.ended,
            limits_set: Vec::new(),
            level: 0,
            resources: resources.collect(),
            mechanisms: vec![MechanismUse {
                name: self.tool.0.to_owned(),
                used: true,
                why: self.tool.1.to_owned(),
            }],
            overhead: Overhead::default(),
            disturbed: Vec::new(),
            findings: Vec::new(),
            processes: Vec::new(),
            processes_left_out: 0,
            nested: Vec::new(),
            nested_left_out: 0,
            job: None,
        }
    }
}

/// The numbers that a tool gave, by our names.
struct Readings(BTreeMap<&'static str, Reading>, &'static str);

impl Readings {
    fn new(method: &'static str) -> Self {
        Self(BTreeMap::new(), method)
    }

    /// A value, unless it is none that can be.
    fn put(
        &mut self,
        name: &'static str,
        value: Option<f64>,
        completeness: Completeness,
        error_bound: Option<f64>,
        reason: &str,
    ) {
        let unit = resource(name).map_or("", |r| r.unit);
        let Some(value) = value.filter(|v| v.is_finite() && *v >= 0.0) else { return };
        let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        let (method, unit) = (self.1.to_owned(), unit.to_owned());
        let reading =
            Reading { value: Some(value), unit, method, completeness, error_bound, reason };
        self.0.insert(name, reading);
    }

    /// Nothing is known of it, and why.
    fn unknown(&mut self, name: &'static str, reason: &str) {
        let unit = resource(name).map_or("", |r| r.unit);
        self.0.insert(name, Reading::unknown(unit, reason));
    }
}

fn ended(exit_type: ExitType, status: Option<i32>, signal: Option<i32>) -> Ended {
    Ended { exit_type, status, signal, limits: Vec::new(), guilty: None }
}

/// The last part of a program's path: what its tasks are called if nobody named them.
fn base_name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
