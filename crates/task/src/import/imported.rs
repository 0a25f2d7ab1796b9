//! The summary that a report of another tool becomes.

use std::collections::BTreeMap;

use skopos_model::task::{
    Completeness, Ended, ExitType, Host, Identity, MechanismUse, Overhead, RESOURCES, Reading,
    SUMMARY_VERSION, Summary, resource,
};

/// The most processes that an imported report lists, as in our own reports.
pub(super) const MAX_LISTED: usize = 1000;

/// The report of a tool, in our terms.
pub(super) struct Imported {
    pub(super) task: Identity,
    pub(super) host: Host,
    pub(super) start_seconds: f64,
    pub(super) end_seconds: f64,
    pub(super) ended: Ended,
    pub(super) readings: Readings,
    /// The name of the tool, as a mechanism, and its note.
    pub(super) tool: (&'static str, &'static str),
}

impl Imported {
    /// Makes the summary. A resource without a reading gets `unknown` as the reason.
    pub(super) fn summary(self, unknown: &str) -> Summary {
        let mut readings = self.readings.0;
        let resources = RESOURCES.iter().map(|r| {
            let reading = readings.remove(r.name);
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

/// The numbers of a tool, by the names of our resources, and the tool's name.
pub(super) struct Readings(BTreeMap<&'static str, Reading>, &'static str);

impl Readings {
    pub(super) fn new(method: &'static str) -> Self {
        Self(BTreeMap::new(), method)
    }

    /// Adds a value, unless it is negative or not finite.
    pub(super) fn put(
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
        let missing = Vec::new();
        let reading = Reading {
            value: Some(value),
            unit,
            method,
            completeness,
            error_bound,
            reason,
            missing,
        };
        self.0.insert(name, reading);
    }

    /// Marks a resource as unknown, with the reason.
    pub(super) fn unknown(&mut self, name: &'static str, reason: &str) {
        let unit = resource(name).map_or("", |r| r.unit);
        self.0.insert(name, Reading::unknown(unit, reason));
    }
}

/// Makes the end of a task without limits.
pub(super) fn ended(exit_type: ExitType, status: Option<i32>, signal: Option<i32>) -> Ended {
    Ended { exit_type, status, signal, limits: Vec::new(), guilty: None }
}

/// Returns the last part of a program's path: the class of its tasks if the report names none.
pub(super) fn base_name(program: &str) -> String {
    program.rsplit('/').next().unwrap_or_default().to_owned()
}
