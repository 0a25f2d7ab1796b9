//! The findings of `skopos-rpc` about the traces of a case.

use std::path::Path;

use serde::Serialize;
use skopos_rpc::analysis::finding::{Found, NodeFacts, Verdict, judge};
use skopos_rpc::analysis::trace::Trace;
use skopos_rpc::folder::Folder;

use crate::error::{Error, Result};

/// A condition that was found, with its changes.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Name of the rule.
    pub name: &'static str,
    /// The condition in a sentence.
    pub sentence: String,
    /// The changes, the best first.
    pub fixes: Vec<Fix>,
}

/// A change of the configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Fix {
    /// Key of the configuration.
    pub key: String,
    /// The value to set.
    pub value: String,
    /// The part of the cumulative time of the calls that it saves by the prediction, in percent.
    pub saved_percent: Option<f64>,
}

/// Judges the traces in a folder. Returns what was found, that with the greatest gain first.
///
/// # Errors
/// The traces cannot be read.
pub fn findings(folder: &Path) -> Result<Vec<Finding>> {
    let loader = Folder::open(folder).map_err(Error::Recorder)?;
    let trace = Trace::open(&loader).map_err(Error::Recorder)?;
    let judged = judge(&trace, &NodeFacts::default()).map_err(Error::Recorder)?;
    let found = judged.findings.into_iter().filter_map(|judged| match judged.verdict {
        Verdict::Found(found) => Some(finding(judged.finding, &found)),
        Verdict::Absent | Verdict::Unknown { .. } => None,
    });
    Ok(found.collect())
}

fn finding(name: &'static str, found: &Found) -> Finding {
    let fixes = found.fixes.iter().map(|fix| Fix {
        key: fix.key.clone(),
        value: fix.value.clone(),
        saved_percent: fix.gain.map(|gain| gain.value * 100.0),
    });
    Finding { name, sentence: found.what.clone(), fixes: fixes.collect() }
}

/// The prediction for a change of one key, by any of the findings, in percent.
#[must_use]
pub fn predicted(findings: &[Finding], key: &str, value: &str) -> Option<f64> {
    let mut fixes = findings.iter().flat_map(|finding| &finding.fixes);
    fixes.find(|fix| fix.key == key && fix.value == value)?.saved_percent
}
