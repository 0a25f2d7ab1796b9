//! Unusual values: the present ones first, then the events in memory.

use std::time::Duration;

use ratatui::text::{Line, Span};
use skopos_model::schema::self_ as own;
use skopos_model::{Kind, Value};

use super::parts::{LABEL, items, labelled};
use crate::data::{Data, Fact};
use crate::findings::{Expected, Finding};
use crate::table::{Cell, Column, Row, Table, fill, number, words};
use crate::text;
use crate::theme::Theme;
use skopos_term::format;

const COLUMNS: [Column; 5] = [
    words("state", 8, 0),
    number("time", 8, 0),
    fill("topic", 20, 0),
    number("value", 11, 1),
    words("expected", 19, 2),
];

/// The age from which on an event shows its age instead of the time of day.
const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// The text for the empty table.
pub(super) const EMPTY: &str =
    "Nothing unusual was found; docs/reference/anomalies.md lists the rules.";

pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<_> = line(data, theme, width).into_iter().collect();
    // Without the agent's answer, only events in memory are counted.
    if let Some(trouble) = &data.answers.trouble {
        let text = text::cut(&format!("! {trouble}"), width, theme.ellipsis());
        lines.push(Line::from(Span::styled(text, theme.warning())));
    }
    lines
}

/// Number of findings, and the rules of the present ones.
pub(super) fn line(data: &Data, theme: Theme, width: usize) -> Option<Line<'static>> {
    let findings = &data.findings;
    let counted =
        data.instance(&own::FAMILY, "").and_then(|agent| agent.value(&own::ANOMALY_EVENTS_TOTAL));
    if counted.is_none() && findings.is_empty() {
        return None;
    }
    let total = counted.unwrap_or((findings.present.len() + findings.past.len()) as f64);
    let events = (text::number(Some(total)), if total == 1.0 { "event" } else { "events" });
    let unreadable = match findings.unreadable {
        0 => text::UNKNOWN.to_owned(),
        count => count.to_string(),
    };
    let unreadable = (unreadable, "unreadable records");
    if findings.present.is_empty() {
        let raised = ("0".to_owned(), "raised");
        let shown = items(theme, width, &[raised, events, unreadable]);
        return Some(labelled(theme, "findings", false, shown));
    }
    let raised = format!("! {} raised  ", findings.present.len());
    let mut room = width.saturating_sub(text::width(&raised));
    let mut spans = vec![Span::styled(raised, theme.warning())];
    let mut rules: Vec<&str> = findings.present.iter().map(|f| f.rule.as_str()).collect();
    rules.sort_unstable();
    rules.dedup();
    let named = text::cut(&rules.join(", "), room.saturating_sub(LABEL), theme.ellipsis());
    room = room.saturating_sub(text::width(&named) + 2);
    spans.push(Span::styled(format!("{named}  "), theme.strong()));
    spans.extend(items(theme, room, &[events, unreadable]));
    Some(labelled(theme, "findings", false, spans))
}

/// The text in the header of all panes; `None` without a present finding.
pub(crate) fn marker(data: &Data) -> Option<String> {
    match data.findings.present.len() {
        0 => None,
        1 => Some("! 1 finding".to_owned()),
        count => Some(format!("! {count} findings")),
    }
}

pub(super) fn table(data: &Data) -> Table {
    let findings = &data.findings;
    let present = findings.present.iter().map(|finding| row(data, finding, true));
    let past = findings.past.iter().map(|finding| row(data, finding, false));
    Table::new("rule", &COLUMNS, present.chain(past).collect())
}

fn row(data: &Data, finding: &Finding, holds: bool) -> Row {
    let topic = finding.topic.parse().ok();
    let fact = topic.as_ref().and_then(|topic| data.fact(topic));
    let age = data.now.since(finding.at);
    let time = match age < A_DAY {
        true => format::time_of_day(finding.at).get(..8).unwrap_or_default().to_owned(),
        false => text::age(age),
    };
    let state = match (holds, finding.raised) {
        (true, _) => "! RAISED",
        (false, true) => "raised",
        (false, false) => "cleared",
    };
    let below_node = finding.topic.strip_prefix(&data.node).and_then(|t| t.strip_prefix('/'));
    let cells = vec![
        Cell::words(state),
        Cell::Text(time, Some(finding.at.as_nanos() as f64)),
        Cell::words(below_node.unwrap_or(&finding.topic)),
        Cell::Text(amount(fact, finding.value), finding.value),
        Cell::words(expected(fact, &finding.expected)),
    ];
    let mut row = Row::new(finding.rule.clone(), cells);
    row.id = format!("{} {} {}", finding.rule, finding.topic, finding.at.as_nanos());
    row.stale = fact.is_some_and(|fact| fact.stale);
    row.note = Some(note(data, fact, finding));
    row.topic = fact.map(|fact| fact.topic.clone());
    row
}

/// A number in the unit of its topic; a rate for a counter.
fn amount(fact: Option<&Fact>, number: Option<f64>) -> String {
    match (number, fact) {
        (None, _) => text::UNKNOWN.to_owned(),
        (Some(number), Some(fact)) if fact.kind == Kind::Counter => text::rate(number, fact.unit),
        (Some(number), Some(fact)) => text::value(&Value::F64(number), fact.unit),
        (number, None) => text::number(number),
    }
}

/// The bounds if there are any, else the most likely value.
fn expected(fact: Option<&Fact>, expected: &Expected) -> String {
    match (expected.low, expected.high) {
        (Some(low), Some(high)) => {
            format!("{} to {}", amount(fact, Some(low)), amount(fact, Some(high)))
        }
        (Some(low), None) => format!("at least {}", amount(fact, Some(low))),
        (None, Some(high)) => format!("at most {}", amount(fact, Some(high))),
        (None, None) => amount(fact, expected.value),
    }
}

/// The event in words.
fn note(data: &Data, fact: Option<&Fact>, finding: &Finding) -> String {
    let became = if finding.raised { "unusual" } else { "usual again" };
    let time = format::time_of_day(finding.since);
    let since = time.get(..8).unwrap_or_default();
    let mut text = format!(
        "{became} since {since} ({} ago): value {}, expected {}; by {}",
        text::age(data.now.since(finding.since)),
        amount(fact, finding.value),
        expected(fact, &finding.expected),
        finding.detector,
    );
    if let Some(score) = finding.score {
        text += &format!(", score {}", text::short(score));
    }
    match finding.suppressed {
        0 => {}
        count => text += &format!(", {count} changes before it suppressed"),
    }
    if fact.is_none() {
        text += &format!("; {} is gone", finding.topic);
    }
    text
}
