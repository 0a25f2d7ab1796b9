//! An invocation record of Kickstart, parsed from its YAML or its XML.

use std::collections::BTreeMap;

/// The fields of one record, by their path in the YAML.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) fields: BTreeMap<String, String>,
    pub(super) arguments: Vec<String>,
    pub(super) processes: Vec<BTreeMap<String, String>>,
    /// The entry of `mainjob.procs` that the last field belonged to.
    process: String,
}

impl Record {
    /// Adds a field. The first field of a name counts: output of the job comes later in the record.
    pub(super) fn field(&mut self, path: String, value: String) {
        if let Some(rest) = path.strip_prefix("mainjob.procs.") {
            let Some((id, key)) = rest.split_once('.') else { return };
            if self.process != id || self.processes.is_empty() {
                id.clone_into(&mut self.process);
                self.begin_process();
            }
            self.process_field(key, value);
        } else if let Some(key) = path.strip_prefix("mainjob.proc.") {
            self.process_field(key, value);
        } else if !path.starts_with("files.") && !path.starts_with("environment.") {
            self.fields.entry(path).or_insert(value);
        }
    }

    /// Adds an item of a list.
    pub(super) fn item(&mut self, path: &str, value: String) {
        if path == "mainjob.argument_vector" {
            self.arguments.push(value);
        }
    }

    /// Begins another process.
    pub(super) fn begin_process(&mut self) {
        self.processes.push(BTreeMap::new());
    }

    fn process_field(&mut self, key: &str, value: String) {
        if let Some(process) = self.processes.last_mut() {
            process.entry(key.to_owned()).or_insert(value);
        }
    }

    pub(super) fn text(&self, path: &str) -> String {
        self.fields.get(path).cloned().unwrap_or_default()
    }

    pub(super) fn number(&self, path: &str) -> Option<f64> {
        number(&self.fields, path)
    }

    /// True if a field follows those of the job, so that the last value of the job is not cut off.
    pub(super) fn is_whole(&self) -> bool {
        self.fields.contains_key("cwd") || self.fields.contains_key("mainjob.end")
    }
}

/// Returns a field as a number; `None` if it is negative or not finite.
pub(super) fn number(fields: &BTreeMap<String, String>, path: &str) -> Option<f64> {
    fields.get(path)?.parse().ok().filter(|v: &f64| v.is_finite() && *v >= 0.0)
}
