//! The part below a table: the topic of the chosen row, and its history.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use skopos_model::Value;

use crate::data::{self, Data, Fact};
use crate::draw::{graph, put, put_right};
use crate::history::{self, Series};
use crate::table::Row;
use crate::text;
use crate::theme::Theme;

/// The least height of a pane with a detail part.
const LEAST_PANE: u16 = 13;
/// The most lines for notes and the reason of an unknown value; the rest is for the history.
const MAX_NOTE_LINES: usize = 3;

/// Number of rows for the detail in a pane of this height.
pub(crate) fn rows(height: u16) -> u16 {
    if height < LEAST_PANE { 0 } else { (height / 3).clamp(6, 12) }
}

/// Draws heading, history, the texts of the schema, and the note of the row.
pub(crate) fn draw(data: &Data, row: &Row, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let fact = row.topic.as_ref().and_then(|topic| data.fact(topic));
    if area.height == 0 || (fact.is_none() && row.note.is_none()) {
        return;
    }
    let width = usize::from(area.width);
    let rule = theme.rule().to_string();
    let heading = fact.map_or(row.key.as_str(), |fact| fact.topic.as_str());
    put(buffer, area, 0, &Line::styled(rule.repeat(width), theme.quiet()));
    put(buffer, area, 0, &Line::styled(format!("{rule} {heading} "), theme.title()));
    let room = width.saturating_sub(2);
    let note = row.note.as_ref().map(|note| text::wrap(note, room)).unwrap_or_default();
    let Some(fact) = fact else {
        let below = Rect { y: area.y + 1, height: area.height - 1, ..area };
        for (row, line) in note.iter().enumerate() {
            put(buffer, below, row as u16, &indented(line));
        }
        return;
    };
    let series = history::series(data, &fact.topic, room).filter(|s| s.bounds().is_some());
    let mut words = note;
    words.truncate(MAX_NOTE_LINES);
    // A reason stands in place of a value, or beside a history.
    let reason = data.reason(fact).map(|reason| format!("unknown: {reason}"));
    if series.is_some() {
        words.extend(reason.iter().flat_map(|reason| text::wrap(reason, room)));
        words.truncate(MAX_NOTE_LINES);
    }
    let about = about(data, fact, room);
    let fitting = usize::from(area.height.saturating_sub(1)).saturating_sub(words.len());
    // The last line, about the state, says most.
    words.extend(about[about.len().saturating_sub(fitting.max(1))..].iter().cloned());
    let words_rows = (words.len() as u16).min(area.height.saturating_sub(1));
    let graph_rows = area.height - 1 - words_rows;
    let words_area = Rect { y: area.y + 1 + graph_rows, height: words_rows, ..area };
    for (row, line) in words.iter().enumerate() {
        put(buffer, words_area, row as u16, &Line::styled(format!(" {line}"), theme.quiet()));
    }
    let graph_area = Rect { y: area.y + 1, height: graph_rows, ..area };
    match series {
        Some(series) if graph_rows > 0 => draw_series(&series, theme, buffer, graph_area, area),
        _ => {
            let value = fact.value.as_ref().map(|value| text::value(value, fact.unit));
            let value = value.or(reason).unwrap_or_else(|| "no value yet".to_owned());
            for (row, line) in text::wrap(&value, room).iter().enumerate() {
                put(buffer, graph_area, row as u16, &indented(line));
            }
        }
    }
}

fn indented(line: &str) -> Line<'static> {
    Line::raw(format!(" {line}"))
}

fn draw_series(series: &Series, theme: Theme, buffer: &mut Buffer, area: Rect, whole: Rect) {
    let Some((least, greatest)) = series.bounds() else { return };
    // From zero, unless there are negative values: heights can then be compared.
    let scale = (least.min(0.0), if greatest > 0.0 { greatest } else { 1.0 });
    let inner = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    graph(buffer, inner, theme, &series.values, scale);
    let shown = |value: f64| Span::styled(series.show(value), theme.strong());
    let quiet = |text: &'static str| Span::styled(text, theme.quiet());
    let reach = Span::styled(format!("  last {} ", series.reach()), theme.quiet());
    let spans = [quiet(" least "), shown(least), quiet("  most "), shown(greatest), reach];
    put_right(buffer, whole, 0, &Line::from(spans.to_vec()));
}

fn help_without_family(fact: &Fact) -> &'static str {
    if fact.is_below(data::INSIGHTS) {
        "An insight of the configuration, or of a program."
    } else if fact.is_below(data::FINDINGS) {
        "Events of a rule for unusual values."
    } else if fact.is_below(data::PREDICTIONS) {
        "The present value of the topic without `predicted/`, predicted from its last values."
    } else {
        "Published by a user or an application."
    }
}

/// A description of a fact, in lines of at most `width`.
fn about(data: &Data, fact: &Fact, width: usize) -> Vec<String> {
    let publisher = data.publishers.get(fact.publisher);
    let publisher = publisher.map_or_else(String::new, |p| format!("{} {}", p.name, p.pid));
    let unit = if fact.unit.as_str().is_empty() { "no unit" } else { fact.unit.as_str() };
    let mut lines = match fact.known {
        Some((family, metric)) => {
            text::wrap(&format!("{}. From {}.", metric.help, family.source), width)
        }
        None => vec![help_without_family(fact).to_owned()],
    };
    lines.truncate(2);
    let mut state = format!("{}, {unit}, by {publisher}", fact.kind);
    if fact.value.is_some() {
        state += &format!(", unchanged for {}", text::age(data.now.since(fact.since)));
    }
    if let Some(bound) = fact.bound {
        state += &format!(", predicted within {}", text::value(&Value::F64(bound), fact.unit));
    }
    if fact.stale {
        state += ", ! stale";
    }
    lines.push(state);
    lines
}
