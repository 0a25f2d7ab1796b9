//! The part below a table: what the chosen row's topic is, and how it went.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use skopos_model::{Topic, Value};

use super::data::{Data, Fact};
use super::draw::{graph, put, put_right};
use super::history::{self, Series};
use super::text;
use super::theme::Theme;

/// Below this height a pane is all table.
const LEAST_PANE: u16 = 13;

/// How many rows of a pane of this height are for the detail.
pub(crate) fn rows(height: u16) -> u16 {
    if height < LEAST_PANE { 0 } else { (height / 3).clamp(6, 12) }
}

/// Draws heading, history, and what the schema says.
pub(crate) fn draw(data: &Data, topic: &Topic, theme: Theme, buffer: &mut Buffer, area: Rect) {
    let Some(fact) = data.fact(topic).filter(|_| area.height > 0) else { return };
    let width = usize::from(area.width);
    let rule = theme.rule().to_string();
    put(buffer, area, 0, &Line::styled(rule.repeat(width), theme.quiet()));
    put(buffer, area, 0, &Line::styled(format!("{rule} {topic} "), theme.title()));
    let words = about(data, fact, width.saturating_sub(2));
    let words_rows = (words.len() as u16).min(area.height.saturating_sub(1));
    let graph_rows = area.height - 1 - words_rows;
    let words_area = Rect { y: area.y + 1 + graph_rows, height: words_rows, ..area };
    for (row, line) in words.iter().enumerate() {
        put(buffer, words_area, row as u16, &Line::styled(format!(" {line}"), theme.quiet()));
    }
    let graph_area = Rect { y: area.y + 1, height: graph_rows, ..area };
    match history::series(data, topic, width.saturating_sub(2)) {
        Some(series) if graph_rows > 0 => draw_series(&series, theme, buffer, graph_area, area),
        _ => {
            let value = fact
                .value
                .as_ref()
                .map_or_else(|| "no value yet".to_owned(), |value| text::value(value, fact.unit));
            for (row, line) in text::wrap(&value, width.saturating_sub(2)).iter().enumerate() {
                put(buffer, graph_area, row as u16, &Line::raw(format!(" {line}")));
            }
        }
    }
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

/// What is known about a fact, in lines of at most `width`.
fn about(data: &Data, fact: &Fact, width: usize) -> Vec<String> {
    let publisher = data.publishers.get(fact.publisher);
    let publisher = publisher.map_or_else(String::new, |p| format!("{} {}", p.name, p.pid));
    let unit = if fact.unit.as_str().is_empty() { "no unit" } else { fact.unit.as_str() };
    let mut lines = match fact.known {
        Some((family, metric)) => {
            text::wrap(&format!("{}. From {}.", metric.help, family.source), width)
        }
        None => vec!["Published by a user or an application.".to_owned()],
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
