//! `rules`: the rules of the hub, each with its last evaluation and its counts.

use std::sync::Arc;

use skopos_access::{Action, may};
use skopos_model::Unit;
use skopos_query::arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, TimestampNanosecondArray,
};
use skopos_query::arrow::datatypes::DataType;
use skopos_query::{BoxError, Column, Fingerprint, Rows, Scan, Table};

use crate::rules::{RuleState, RulesPlace};

/// The table `rules`.
#[derive(Debug)]
pub(super) struct RulesTable {
    place: RulesPlace,
    columns: Vec<Column>,
}

impl RulesTable {
    /// Returns the table of the rules in a place.
    pub(super) fn new(place: RulesPlace) -> Self {
        let mut columns = vec![
            Column::text("rule", "Name of the rule"),
            Column::text(
                "state",
                "`firing`, `pending`, `quiet`, `failing`, or `new` before the first evaluation",
            ),
            Column::text("statement", "Statement of the rule"),
            Column::number("hold", Unit::SECONDS, "Time for which a subject must be in the answer"),
            Column::text("action", "`webhook`, `command` or `publish`"),
            Column::text("target", "Host, program or topic of the action"),
            Column::new("dry_run", DataType::Boolean, "True if actions are not done"),
            Column::time("evaluated_at", "Time of the last evaluation"),
            Column::number("took", Unit::SECONDS, "Time that it took"),
            Column::text("reason", "Reason why it failed"),
        ];
        let counts = RuleState::metrics();
        columns.extend(counts.map(|metric| Column::integer(metric.name, metric.help)));
        Self { place, columns }
    }
}

impl Table for RulesTable {
    fn name(&self) -> &str {
        "rules"
    }

    fn help(&self) -> &str {
        "Rules of the hub, for its owner and admins"
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn scan(&self, scan: &Scan) -> Result<Rows, BoxError> {
        may(scan.caller(), Action::ReadRules)?;
        let rules = self.place.rules();
        let last: Vec<_> = rules.iter().map(|rule| rule.last()).collect();
        let text = |of: &dyn Fn(&RuleState) -> String| -> ArrayRef {
            Arc::new(rules.iter().map(|rule| Some(of(rule))).collect::<StringArray>())
        };
        let numbers = |all: Vec<Option<f64>>| -> ArrayRef { Arc::new(Float64Array::from(all)) };
        let times = last.iter().map(|last| last.at.map(|at| at.as_nanos()));
        let times = times.collect::<TimestampNanosecondArray>().with_timezone("UTC");
        let dry = rules.iter().map(|rule| Some(rule.config.dry_run)).collect::<BooleanArray>();
        let took = last.iter().map(|last| last.at.map(|_| last.took.as_secs_f64()));
        let mut all: Vec<ArrayRef> = vec![
            text(&|rule| rule.config.name.clone()),
            text(&|rule| rule.name_of_state().to_owned()),
            text(&|rule| rule.config.when.clone()),
            numbers(rules.iter().map(|r| Some(r.config.terms.hold.as_secs_f64())).collect()),
            text(&|rule| rule.config.action.kind().to_owned()),
            text(&|rule| rule.config.action.target()),
            Arc::new(dry),
            Arc::new(times),
            numbers(took.collect()),
            Arc::new(last.iter().map(|last| last.reason.clone()).collect::<StringArray>()),
        ];
        let counts: Vec<_> = rules.iter().map(|rule| rule.counts.all()).collect();
        for at in 0..RuleState::metrics().len() {
            let column = counts.iter().map(|counts| i64::try_from(counts[at].1).ok());
            all.push(Arc::new(column.collect::<Int64Array>()));
        }
        Ok(Rows::of(scan.select(&all)?))
    }

    fn fingerprint(&self, _scan: &Scan) -> Fingerprint {
        Fingerprint::Unknown
    }
}
