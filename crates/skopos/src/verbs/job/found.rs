//! The findings of a job, as the hub tells them.

use serde::Serialize;
use serde_json::Value as Json;
use skopos_score::finding::Evidence;
use skopos_term::Failure;

use super::hub::{Hub, Id, Row};

/// A verdict of a rule.
#[derive(Serialize)]
pub(super) struct Finding {
    pub(super) finding: String,
    pub(super) verdict: String,
    pub(super) severity: Option<String>,
    pub(super) what: Option<String>,
    pub(super) evidence: Vec<Evidence>,
    pub(super) advice: Option<String>,
    pub(super) reason: Option<String>,
}

impl Finding {
    fn of(row: &Row) -> Option<Self> {
        let text = |name: &str| row.get(name).and_then(Json::as_str).map(str::to_owned);
        let evidence = text("evidence").and_then(|text| serde_json::from_str(&text).ok());
        Some(Self {
            finding: text("finding")?,
            verdict: text("verdict")?,
            severity: text("severity"),
            what: text("what"),
            evidence: evidence.unwrap_or_default(),
            advice: text("advice"),
            reason: text("reason"),
        })
    }

    pub(super) fn is_found(&self) -> bool {
        self.verdict == "found"
    }

    /// Formats the evidence in one line.
    pub(super) fn shown_evidence(&self) -> String {
        let shown = |e: &Evidence| format!("{}: {}", e.name, e.shown());
        self.evidence.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// Asks for the findings of a job, the most important first.
pub(super) fn findings(hub: &Hub, id: &Id) -> Result<Vec<Finding>, Failure> {
    let sql = format!(
        "SELECT finding, verdict, severity, what, evidence, advice, reason FROM job_findings \
         WHERE {}",
        id.condition()
    );
    let mut found: Vec<Finding> = hub.rows(&sql)?.iter().filter_map(Finding::of).collect();
    let order = |finding: &Finding| {
        let severities = ["serious", "warning", "note"];
        let verdicts = ["found", "absent", "unknown"];
        let at = |all: &[&str], name: &str| all.iter().position(|one| *one == name);
        let severity = finding.severity.as_deref().unwrap_or_default();
        (at(&verdicts, &finding.verdict), at(&severities, severity))
    };
    found.sort_by_key(order);
    Ok(found)
}
