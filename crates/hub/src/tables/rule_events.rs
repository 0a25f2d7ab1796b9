//! `rule_events`: the history of rules, a row for each event and for each outcome of an action.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;
use skopos_access::{Action, may};
use skopos_query::arrow::array::{
    ArrayRef, BooleanArray, Int64Array, StringArray, TimestampNanosecondArray,
};
use skopos_query::arrow::datatypes::DataType;
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};

use crate::rules::{RuleRecord, RulesPlace};

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The most entries of one answer: more than the history has room for, unless rows are tiny.
const MAX_ENTRIES: usize = 200_000;

/// The table `rule_events`.
#[derive(Debug)]
pub(super) struct RuleEvents {
    place: RulesPlace,
    columns: Vec<Column>,
}

impl RuleEvents {
    /// Returns the table of the history in a place.
    pub(super) fn new(place: RulesPlace) -> Self {
        let columns = vec![
            Column::time("time", "Time of the event, or of the end of its action"),
            Column::text("rule", "Name of the rule"),
            Column::text(
                "event",
                "`firing`, `still_firing`, `resolved`, `flapping`, `steady`, `failed`, `recovered`, `action` for the outcome of an action, or `lost` for a gap in the history",
            ),
            Column::text("subject", "Name of the subject"),
            Column::time(
                "since",
                "Time at which it came into the answer; of an action, the time of its event",
            ),
            Column::new("firing", DataType::Boolean, "Whether the subject fires"),
            Column::text(
                "outcome",
                "Of an event `due`, `published` or `held_back`; of an action `done`, `failed` or `dry_run`",
            ),
            Column::integer("attempts", "Number of attempts of an action"),
            Column::text("why", "Reason"),
            Column::text("details", "Row of the subject, as JSON"),
        ];
        Self { place, columns }
    }
}

impl Table for RuleEvents {
    fn name(&self) -> &str {
        "rule_events"
    }

    fn help(&self) -> &str {
        "History of rules: their events and the outcomes of actions, for the owner of the hub and admins"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        may(scan.caller(), Action::ReadRules)?;
        let Some(history) = self.place.history() else { return Ok(Rows::each([])) };
        let mut records = VecDeque::new();
        let lost = history.read(&mut |record| {
            if records.len() >= MAX_ENTRIES {
                records.pop_front();
            }
            records.push_back(record);
        })?;
        if lost > 0 {
            records.push_front(RuleRecord::gap(lost));
        }
        let records = Vec::from(records);
        let (scan, chunks) = (scan.clone(), records.len().div_ceil(BATCH_ROWS));
        let batch = move |at: usize| {
            let end = records.len().min((at + 1) * BATCH_ROWS);
            scan.select(&arrays(&records[at * BATCH_ROWS..end]))
        };
        Ok(Rows::each((0..chunks).map(batch)))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}

fn arrays(records: &[RuleRecord]) -> Vec<ArrayRef> {
    let text = |of: fn(&RuleRecord) -> &str| -> ArrayRef {
        let known = |record| Some(of(record)).filter(|text| !text.is_empty());
        Arc::new(records.iter().map(known).collect::<StringArray>())
    };
    let time = |of: fn(&RuleRecord) -> i64| -> ArrayRef {
        let times = records.iter().map(|record| Some(of(record)).filter(|time| *time != 0));
        Arc::new(times.collect::<TimestampNanosecondArray>().with_timezone("UTC"))
    };
    let values = records.iter().map(|record| {
        (!record.values.is_empty()).then(|| Value::Object(record.values.clone()).to_string())
    });
    vec![
        time(|record| record.at),
        text(|record| &record.rule),
        text(|record| &record.event),
        text(|record| &record.subject),
        time(|record| record.since),
        Arc::new(records.iter().map(|r| Some(r.firing)).collect::<BooleanArray>()),
        text(|record| &record.outcome),
        Arc::new(records.iter().map(|r| Some(i64::from(r.attempts))).collect::<Int64Array>()),
        text(|record| &record.why),
        Arc::new(values.collect::<StringArray>()),
    ]
}
