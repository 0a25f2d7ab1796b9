//! Values that detectors found unusual: the events in memory, and the ones that still hold.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Value as Json;
use skopos_model::Timestamp;

/// An event: a value became unusual, or usual again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub rule: String,
    pub detector: String,
    /// The topic of the value.
    pub topic: String,
    pub at: Timestamp,
    /// The time at which the change began.
    pub since: Timestamp,
    /// The value at that time.
    pub value: Option<f64>,
    pub expected: Expected,
    pub score: Option<f64>,
    /// True if it became unusual, false if usual again.
    pub raised: bool,
    /// Number of changes before this one that were suppressed, because too many came at once.
    pub suppressed: u64,
}

/// The expectation: the most likely value, and its bounds if there are any.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Expected {
    pub value: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// All findings in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Values that are unusual now, the latest first.
    pub present: Vec<Finding>,
    /// The other events, the latest first.
    pub past: Vec<Finding>,
    /// Number of records that are not events of Skopos.
    pub unreadable: usize,
}

impl Finding {
    /// Parses a published record; `None` if it is not an event.
    pub(crate) fn parse(record: &Json) -> Option<Self> {
        let text = |name: &str| record[name].as_str().map(str::to_owned);
        let time = |name: &str| record[name].as_i64().map(Timestamp::from_nanos);
        let expected = &record["expected"];
        let at = time("at_ns")?;
        Some(Self {
            rule: text("rule")?,
            detector: text("detector")?,
            topic: text("topic")?,
            at,
            since: time("since_ns").unwrap_or(at),
            value: record["came"].as_f64(),
            expected: Expected {
                value: expected["value"].as_f64(),
                low: expected["low"].as_f64(),
                high: expected["high"].as_f64(),
            },
            score: record["score"].as_f64(),
            raised: match record["state"].as_str()? {
                "raised" => true,
                "cleared" => false,
                _ => return None,
            },
            suppressed: record["suppressed"].as_u64().unwrap_or(0),
        })
    }
}

impl Findings {
    /// Joins the events in memory, the oldest of each rule first, with the values that the agent
    /// reports as unusual now. A report counts unless memory has a later event of its rule and topic:
    /// the event may have been overwritten or suppressed. An event of a topic that is gone is past.
    pub(crate) fn new(
        events: Vec<Finding>,
        reported: &[Finding],
        is_there: impl Fn(&str) -> bool,
    ) -> Self {
        let mut latest: HashMap<(&str, &str), usize> = HashMap::new();
        for (index, event) in events.iter().enumerate() {
            latest.insert((&event.rule, &event.topic), index);
        }
        let is_new = |finding: &&Finding| match latest.get(&(&*finding.rule, &*finding.topic)) {
            Some(&known) => !events[known].raised && events[known].at < finding.at,
            None => true,
        };
        let mut present: Vec<Finding> = reported.iter().filter(is_new).cloned().collect();
        let holds = |index: usize| {
            let event = &events[index];
            event.raised
                && latest[&(&*event.rule, &*event.topic)] == index
                && is_there(&event.topic)
        };
        let hold: Vec<bool> = (0..events.len()).map(holds).collect();
        let mut past = Vec::new();
        for (event, holds) in events.into_iter().zip(hold) {
            if holds { present.push(event) } else { past.push(event) }
        }
        present.sort_by_key(|finding| Reverse(finding.at));
        past.sort_by_key(|finding| Reverse(finding.at));
        Self { present, past, unreadable: 0 }
    }

    /// True without any event in memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.present.is_empty() && self.past.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(rule: &str, topic: &str, at: i64, state: &str) -> Finding {
        let record = serde_json::json!({
            "rule": rule, "detector": "threshold", "topic": topic, "state": state, "at_ns": at,
            "since_ns": at - 1, "came": 3.0, "expected": {"value": 1.0, "low": null, "high": 2.0},
            "score": 4.0, "suppressed": 0,
        });
        Finding::parse(&record).expect("an event")
    }

    fn shown(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(|f| format!("{} {} {}", f.rule, f.topic, f.at.as_nanos())).collect()
    }

    #[test]
    fn present_and_past_findings_are_separated() {
        let check = |events: &[(&str, &str, i64, &str)],
                     reported: &[(&str, &str, i64)],
                     present: &[&str],
                     past: &[&str]| {
            let events =
                events.iter().map(|&(rule, topic, at, state)| event(rule, topic, at, state));
            let reported =
                reported.iter().map(|&(rule, topic, at)| event(rule, topic, at, "raised"));
            let reported: Vec<Finding> = reported.collect();
            let found = Findings::new(events.collect(), &reported, |topic| topic != "n/gone");
            assert_eq!((shown(&found.present), shown(&found.past)), (owned(present), owned(past)));
        };
        check(&[], &[], &[], &[]);
        check(&[("r", "n/a", 5, "raised")], &[], &["r n/a 5"], &[]);
        check(
            &[("r", "n/a", 5, "raised"), ("r", "n/a", 9, "cleared")],
            &[],
            &[],
            &["r n/a 9", "r n/a 5"],
        );
        // Each topic by itself, the latest first; a topic that is gone is not unusual any more.
        let events = [
            ("r", "n/a", 5, "raised"),
            ("r", "n/b", 7, "raised"),
            ("r", "n/gone", 8, "raised"),
            ("s", "n/a", 6, "raised"),
        ];
        check(&events, &[], &["r n/b 7", "s n/a 6", "r n/a 5"], &["r n/gone 8"]);
        // The agent reports findings whose events memory has lost, and nothing appears twice.
        check(&[("r", "n/a", 5, "raised")], &[("r", "n/a", 4)], &["r n/a 5"], &[]);
        check(&[], &[("r", "n/a", 4)], &["r n/a 4"], &[]);
        let cleared = [("r", "n/a", 5, "cleared")];
        check(&cleared, &[("r", "n/a", 4)], &[], &["r n/a 5"]);
        check(&cleared, &[("r", "n/a", 6)], &["r n/a 6"], &["r n/a 5"]);
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn other_records_are_not_events() {
        for record in [
            serde_json::json!("text"),
            serde_json::json!({}),
            serde_json::json!({"rule": "r", "detector": "d", "topic": "t", "at_ns": 1, "state": "x"}),
        ] {
            assert_eq!(Finding::parse(&record), None, "{record}");
        }
    }
}
