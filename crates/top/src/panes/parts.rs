//! Lines and rows that several panes show.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::data::{Data, Fact, Instance};
use crate::draw::fitting;
use crate::table::{Cell, Row};
use crate::text::{self, fit};
use crate::theme::Theme;

/// Width of a label, including its sign of staleness and a blank.
pub(super) const LABEL: usize = 10;

/// A line that begins with a label.
pub(super) fn labelled(
    theme: Theme,
    label: &str,
    stale: bool,
    spans: impl IntoIterator<Item = Span<'static>>,
) -> Line<'static> {
    let sign = if stale { "!" } else { " " };
    let label = fit(label, LABEL - 2, false, "");
    let mut line = Line::from(Span::styled(format!("{sign}{label} "), theme.title()));
    line.extend(spans);
    if stale { line.style(theme.quiet()) } else { line }
}

/// Numbers and their names, `12 established  0 listening`; the ones that do not fit are left out.
pub(super) fn items(theme: Theme, width: usize, items: &[(String, &str)]) -> Vec<Span<'static>> {
    let known = items.iter().filter(|(value, _)| value != text::UNKNOWN);
    let groups = known.map(|(value, name)| {
        let value = Span::styled(value.clone(), theme.strong());
        vec![value, Span::styled(format!(" {name}  "), theme.quiet())]
    });
    // The blanks after the last item may be cut.
    fitting(groups, width.saturating_sub(LABEL) + 2)
}

/// The text of a value, with `~` before a predicted value.
pub(super) fn value(fact: &Fact) -> String {
    let sign = if fact.bound.is_some() { "~" } else { "" };
    match &fact.value {
        Some(value) => format!("{sign}{}", text::value(value, fact.unit)),
        None => text::UNKNOWN.to_owned(),
    }
}

pub(super) fn rate(fact: &Fact) -> String {
    fact.rate.map_or_else(String::new, |rate| text::rate(rate, fact.unit))
}

/// A row of a table of instances.
pub(super) fn row(
    instance: &Instance<'_>,
    name: String,
    history: Option<&Fact>,
    cells: Vec<Cell>,
) -> Row {
    let mut row = Row::new(name, cells);
    row.topic = history.map(|f| f.topic.clone());
    row.stale = instance.is_stale();
    row
}

/// The topic of a fact, without the node if that is the node of the panes.
pub(super) fn name(data: &Data, fact: &Fact) -> String {
    if fact.topic.node() == data.node {
        fact.below_node().to_owned()
    } else {
        fact.topic.to_string()
    }
}

/// The style of a line about something that is missing.
pub(super) fn absent(theme: Theme) -> Style {
    theme.quiet()
}
