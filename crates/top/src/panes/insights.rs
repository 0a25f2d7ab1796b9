//! Insights with their value, or the reason why it is unknown; also built-in insights without a vertex.

use ratatui::text::{Line, Span};
use skopos_score::insight::{DEFINITIONS, Definition};

use super::parts::{items, labelled, value};
use super::{paths, slow_device};
use crate::data::{Data, Fact, natural};
use crate::table::{Cell, Column, Row, Table, fill, number, words};
use crate::text;
use crate::theme::Theme;

/// Two addresses of IPv4, as a path has them, are most often told apart by this many characters.
const OF_WIDTH: usize = 20;

const COLUMNS: [Column; 3] = [words("of", OF_WIDTH, 2), fill("value", 30, 0), number("age", 5, 1)];

pub(super) fn summary(data: &Data, theme: Theme, width: usize) -> Vec<Line<'static>> {
    let known = data.insights().filter(|fact| fact.value.is_some()).count();
    let unknown = data.insights().count() - known;
    let some = |count: usize| match count {
        0 => text::UNKNOWN.to_owned(),
        count => count.to_string(),
    };
    let shown = [
        (known.to_string(), "known"),
        (unknown.to_string(), "unknown"),
        (some(absent(data).count()), "without vertex"),
        (some(data.answers.refused_total), "refused"),
    ];
    let mut lines = vec![labelled(theme, "insights", false, items(theme, width, &shown))];
    if let Some(trouble) = &data.answers.trouble {
        let text = text::cut(&format!("! {trouble}"), width, theme.ellipsis());
        lines.push(Line::from(Span::styled(text, theme.warning())));
    }
    lines
}

/// All insights, by name and then by subject.
pub(super) fn table(data: &Data) -> Table {
    let mut rows: Vec<(Row, String)> = data.insights().map(|fact| known_row(data, fact)).collect();
    rows.extend(absent(data).map(|definition| (absent_row(data, definition), String::new())));
    rows.extend(data.answers.refused.iter().map(|(topic, reason)| refused_row(topic, reason)));
    rows.sort_by(|(a, of_a), (b, of_b)| a.key.cmp(&b.key).then_with(|| natural(of_a, of_b)));
    Table::new("insight", &COLUMNS, rows.into_iter().map(|(row, _)| row).collect())
}

/// Built-in insights that do not have a vertex.
fn absent(data: &Data) -> impl Iterator<Item = &'static Definition> {
    let has_vertex = |name: &str| data.insights().any(|fact| fact.topic.metric() == name);
    DEFINITIONS.iter().copied().filter(move |definition| !has_vertex(definition.metric.name))
}

/// A row, and its subject to sort by.
fn known_row(data: &Data, fact: &Fact) -> (Row, String) {
    let (name, of) = parts(fact.topic.as_str());
    let of = match fact.topic.node() {
        node if node == data.node => of,
        other => format!("{other} {of}"),
    };
    let age = fact.value.as_ref().map(|_| fact.age);
    let state = match data.reason(fact) {
        Some(reason) => Cell::Quiet(format!("unknown: {reason}")),
        None => Cell::words(told(fact).unwrap_or_else(|| value(fact))),
    };
    let age = Cell::Text(age.map_or_else(String::new, text::age), age.map(|a| a.as_secs_f64()));
    let mut row = Row::new(name, vec![Cell::words(of.clone()), state, age]);
    row.id = fact.topic.to_string();
    row.topic = Some(fact.topic.clone());
    row.stale = fact.stale;
    (row, of)
}

/// Returns the record of an insight as a text for people; `None` for an insight without one.
fn told(fact: &Fact) -> Option<String> {
    paths::told(fact).or_else(|| slow_device::told(fact).map(str::to_owned))
}

fn absent_row(data: &Data, definition: &Definition) -> Row {
    let name = definition.metric.name;
    let reason =
        data.answers.absent.get(name).map_or_else(|| data.missing_reason(), String::as_str);
    let state = Cell::Quiet(format!("unknown: {reason}"));
    let mut row = Row::new(name.to_owned(), vec![Cell::words(""), state, Cell::words("")]);
    let help = definition.metric.help;
    row.note = Some(format!("unknown: {reason}. {help}. = {}", definition.formula));
    row
}

fn refused_row(topic: &str, reason: &str) -> (Row, String) {
    let (name, of) = parts(topic);
    let state = Cell::Quiet(format!("refused: {reason}"));
    let mut row = Row::new(name, vec![Cell::words(of.clone()), state, Cell::words("")]);
    row.id = format!("refused {topic}");
    row.note = Some(format!("{topic} is refused: {reason}"));
    (row, of)
}

/// Name and subject of an insight: `node/insight/OF/NAME`.
fn parts(topic: &str) -> (String, String) {
    let below = topic.split_once("/insight/").map_or(topic, |(_, below)| below);
    let (of, name) = below.rsplit_once('/').unwrap_or(("", below));
    (name.to_owned(), text::unescape(of))
}
